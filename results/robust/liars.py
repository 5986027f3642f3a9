"""What if two of ten clients lie? Every attack on every setting, with and without robust aggregations.

    python results/robust/liars.py [--settings digits quickstart-3] [--rules fedavg agreement] [--seeds 3]

Finished cells are in ``cells.jsonl`` and are not run again; ``table.md`` is made from it at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.errors import TrainingError

FOLDER = Path(__file__).parent
CELLS = FOLDER / "cells.jsonl"

ATTACKS: dict[str, tuple[str, ...]] = {
    "nobody lies": (),
    "sign flip": ("faults.sign_flip=2",),
    "sign flip × 5": ("faults.sign_flip=2", "faults.flip_by=5"),
    "scale × 10": ("faults.scale=2",),
    "noise": ("faults.noise=2",),
    "NaN": ("faults.nan=2",),
    "label swap": ("faults.label_swap=2",),
    "a little is enough": ("faults.little=2",),
    "stale": ("faults.stale=2",),
    "silent": ("faults.silent=2",),
    "slow": ("faults.slow=2",),
}
DIGITS: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"clients": 10},
    "model": {"name": "mlp", "hidden": [32]},
    "aggregation": {"rounds": 40, "batch_size": 20, "lr": 0.05},
}
SEVERAL = (
    f"labelling.positive={[[(k + step) % 10 for step in (0, 1, 3)] for k in range(10)]}",
    "labelling.overlap=true",
)
"""every class is labelled by three clients, and two clients have one class in common at most"""
SETTINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "digits": ("digits", SEVERAL),
    "quickstart-3": ("quickstart", SEVERAL),
    "digits-10x1": ("digits", ("labelling.positive=1",)),
    "quickstart": ("quickstart", ()),
    "digits, aligned": ("digits", (*SEVERAL, "method.name=aligned")),
    "quickstart-3, aligned": ("quickstart", (*SEVERAL, "method.name=aligned")),
    "digits-10x1, aligned": ("digits", ("labelling.positive=1", "method.name=aligned")),
    "quickstart, aligned": ("quickstart", ("method.name=aligned",)),
    "mnist-3, aligned": (
        "quickstart",
        (*SEVERAL, "method.name=aligned", "data.name=mnist", "aggregation.batch_size=100", "aggregation.rounds=20"),
    ),
    "mnist-10x1, aligned": (
        "quickstart",
        ("method.name=aligned", "data.name=mnist", "aggregation.batch_size=100", "aggregation.rounds=20"),
    ),
    "mnist-3": ("quickstart", (*SEVERAL, "data.name=mnist", "aggregation.batch_size=100", "aggregation.rounds=20")),
    "mnist-10x1": ("quickstart", ("data.name=mnist", "aggregation.batch_size=100", "aggregation.rounds=20")),
}
RULES: dict[str, tuple[str, ...]] = {
    "fedavg": (),
    "agreement": ("aggregation.name=agreement",),
    "agreement, apart 0": ("aggregation.name=agreement", "aggregation.apart=0"),
    "centred-clipping": ("aggregation.name=centred-clipping",),
    "centred-clipping, buckets of 2": ("aggregation.name=centred-clipping", "aggregation.bucket=2"),
    "geometric-median": ("aggregation.name=geometric-median",),
    "multi-krum": ("aggregation.name=multi-krum",),
    "trimmed-mean": ("aggregation.name=trimmed-mean",),
}


def config(setting: str, rule: str, attack: str, seed: int) -> Config:
    """Return the configuration of a cell."""
    base, changes = SETTINGS[setting]
    first = Config.from_dict(DIGITS) if base == "digits" else Config.load(preset=base)
    more = ("engine.workers=1", f"evaluation.every={first.aggregation.rounds}", f"seed={seed}")
    return first.with_(*RULES[rule], *changes, *ATTACKS[attack], *more)


def cells() -> list[dict[str, Any]]:
    """Return what is there already."""
    return [json.loads(line) for line in CELLS.read_text().splitlines()] if CELLS.exists() else []


def measure(setting: str, rule: str, attack: str, seed: int) -> dict[str, Any]:
    """Run one cell: accuracy, who lied, and in how many rounds each client was cut or left out."""
    about = {"setting": setting, "rule": rule, "attack": attack, "seed": seed}
    try:
        result = run(config(setting, rule, attack, seed))
    except TrainingError as error:
        return about | {"accuracy": None, "stopped": str(error)}
    cut = Counter(name for line in result.curve for name in {**line.get("cut", {}), **line.get("left_out", {})})
    liars = sorted(k for own in result.summary.get("faults", {}).values() for k in own)
    return about | {"accuracy": result.accuracy, "liars": liars, "cut": dict(sorted(cut.items()))}


def table(found: list[dict[str, Any]]) -> str:
    """Return accuracies by setting and attack, one column per rule, beside the clean run of FedAvg."""
    by: dict[tuple[str, str, str], dict[int, float | None]] = {}
    for cell in found:
        by.setdefault((cell["setting"], cell["rule"], cell["attack"]), {})[cell["seed"]] = cell["accuracy"]
    lines = []
    for setting in SETTINGS:
        rules = [rule for rule in RULES if any(key[:2] == (setting, rule) for key in by)]
        if not rules:
            continue
        seeds = max(len(values) for key, values in by.items() if key[0] == setting)
        lines += [f"**{setting}**, {seeds} seed{'s' if seeds > 1 else ''}:", ""]
        lines += [f"| two of ten | {' | '.join(rules)} |", f"| --- |{' ---: |' * len(rules)}"]
        for attack in ATTACKS:
            row = [_cell(by, setting, rule, attack) for rule in rules]
            if any(text != "–" for text in row):
                lines.append(f"| {attack} | {' | '.join(row)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(by: dict[tuple[str, str, str], dict[int, float | None]], setting: str, rule: str, attack: str) -> str:
    """Return the mean, and how far it is from the clean run of FedAvg on the same seeds."""
    values = by.get((setting, rule, attack))
    clean = by.get((setting, "fedavg", "nobody lies"), {})
    if not values:
        return "–"
    if None in values.values():
        return "stopped"
    mean = f"{100 * statistics.fmean(values.values()):.1f}"
    if not values.keys() <= clean.keys() or (rule, attack) == ("fedavg", "nobody lies"):
        return mean
    lost = 100 * statistics.fmean(values[seed] - clean[seed] for seed in values)
    return f"{mean} ({lost:+.1f})"


def main() -> None:
    """Run what is asked for and is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=SETTINGS)
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=RULES)
    parser.add_argument("--attacks", nargs="*", default=list(ATTACKS), choices=ATTACKS)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    done = {(cell["setting"], cell["rule"], cell["attack"], cell["seed"]) for cell in cells()}
    for setting in options.settings:
        for seed in range(options.seeds):
            for attack in options.attacks:
                for rule in options.rules:
                    if (setting, rule, attack, seed) in done:
                        continue
                    with CELLS.open("a") as file:
                        file.write(json.dumps(measure(setting, rule, attack, seed), ensure_ascii=False) + "\n")
    (FOLDER / "table.md").write_text(table(cells()))


if __name__ == "__main__":
    main()
