"""What estimated class priors are worth on small data, beside the guess that all classes are even.

    python benchmarks/priors_small.py --out results/priors-small

Every seed of every setting is a line of ``cells.jsonl``; a second call goes on where the first was stopped.
``comparison.md`` is made from those lines. An error is the mean of |prior − truth| over clients and classes:

- *guess*: all classes are even in the unlabelled data
- *estimate*: what ``fedpu priors --set priors.shrink=false`` would say of the same model
- *shrunk*: what ``fedpu priors`` says
- *training*: the priors that clients had at the end of training, those of clients with too few examples for an
  estimator among them; beside it the guess for all clients
- *held*: the share of classes whose range at 95 % holds the truth
- *guessed*: clients that the warning counts
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from fedpu.applications.prepared import prepare
from fedpu.applications.prior_estimates import PriorEstimates, estimate_priors
from fedpu.config import Config
from fedpu.errors import EstimationError

CLASSES = ("partition.kind=classes", "partition.classes_per_client=5")
DIRICHLET = ("partition.kind=dirichlet", "partition.alpha=0.5")
DIGITS = (
    "data.name=digits",
    "model.name=mlp",
    "partition.clients=4",
    "labelling.positive=3",
    "labelling.overlap=true",
    "aggregation.lr=0.1",
)
SETTINGS: dict[str, tuple[str, ...]] = {
    "quickstart (mnist-5k), iid": (),
    "quickstart, 5 classes each": CLASSES,
    "quickstart, Dirichlet .5": DIRICHLET,
    "digits, iid": DIGITS,
    "digits, 5 classes each": (*DIGITS, *CLASSES),
    "digits, Dirichlet .5": (*DIGITS, *DIRICHLET),
    "MNIST, iid, labelled class alone": ("data.name=mnist", "priors.others=even"),
}
COLUMNS = ("guess", "estimate", "shrunk", "guess of all", "training", "held")


def cell(name: str, seed: int) -> dict[str, Any]:
    """Return the errors of one setting and seed."""
    config = Config.load(preset="quickstart", overrides=list(SETTINGS[name])).with_(
        f"seed={seed}", "engine.workers=1", "priors.source=estimated"
    )
    ready = prepare(config)
    assert ready.federation.priors is not None
    assert ready.true_priors is not None
    line: dict[str, Any] = {
        "setting": name,
        "seed": seed,
        "clients": len(ready.federation),
        "guess of all": float((ready.federation.priors - ready.true_priors).abs().mean()),
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            line |= of_estimates(estimate_priors(config, out=folder))
        except EstimationError as error:  # no client has enough examples for the estimator
            line |= {"refused": str(error), "guessed": 0}
        rounds = Path(folder) / "rounds.jsonl"
        if rounds.exists():
            told = [json.loads(text).get("priors") for text in rounds.read_text("utf-8").splitlines()]
            # Where no client ever estimated anything, all have trained with the guess.
            line["training"] = ([p["mean_absolute_error"] for p in told if p] or [line["guess of all"]])[-1]
    return line


def of_estimates(found: PriorEstimates) -> dict[str, Any]:
    """Return the errors over all clients that the estimator did not refuse."""
    shrunk = found.to_dict()
    priors = [one for client in shrunk["clients"] for one in client["priors"] if one["estimate"] is not None]
    return {
        "guess": found.guess_error,
        "estimate": fmean(abs(one["unshrunk"] - one["truth"]) for one in priors),
        "shrunk": found.mean_absolute_error,
        "held": fmean(one["lower"] - 1e-9 <= one["truth"] <= one["upper"] + 1e-9 for one in priors),
        "guessed": sum(client.mostly_guessed for client in found.clients),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """Return the means over seeds, one row for each setting."""
    rows = [
        f"| data and partition | seeds | {' | '.join(COLUMNS)} | guessed |",
        f"| --- | ---: |{' ---: |' * (len(COLUMNS) + 1)}",
    ]
    for name in SETTINGS:
        mine = [line for line in lines if line["setting"] == name]
        if not mine:
            continue
        values = [
            [line[key] for line in mine if key in line and (key != "guess of all" or "training" in line)]
            for key in COLUMNS
        ]
        shown = [f"{fmean(v):.4f}" if v else "–" for v in values[:-1]] + [
            f"{fmean(values[-1]):.0%}" if values[-1] else "–"
        ]
        guessed = f"{sum(line['guessed'] for line in mine)} of {sum(line['clients'] for line in mine)}"
        rows.append(f"| {name} | {len(mine)} | {' | '.join(shown)} | {guessed} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Make the cells that are missing, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/priors-small"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    file = chosen.out / "cells.jsonl"
    lines = [json.loads(text) for text in file.read_text("utf-8").splitlines()] if file.exists() else []
    done = {(line["setting"], line["seed"]) for line in lines}
    for seed in range(chosen.seeds):
        for name in chosen.settings:
            if (name, seed) in done:
                continue
            lines.append(cell(name, seed))
            print(json.dumps(lines[-1], ensure_ascii=False), flush=True)
            with file.open("a", encoding="utf-8") as cells:
                cells.write(json.dumps(lines[-1], ensure_ascii=False) + "\n")
    (chosen.out / "comparison.md").write_text(table(lines), "utf-8")


if __name__ == "__main__":
    main()
