"""How well the choice by the validation score agrees with the test set's: every case a small search of its own.

``python results/validation/agreement.py`` makes ``agreement.json`` and ``agreement.md`` beside this file; stopped and
started again, it goes on. One core, fifteen minutes. MNIST is 4,000 of its training images with all 10,000 test
images, so that "best by test" is not a matter of chance. The test set is looked at here, since that is the question;
``fedpu tune`` never looks.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from cases import CASES, Case
from scipy.stats import spearmanr

from fedpu.applications.tuning import folder_name, tune
from fedpu.config import Config
from fedpu.data import Dataset, load
from fedpu.record import RunDirectory

HERE = Path(__file__).parent
SEEDS = (0, 1)
NEAR = 0.3
"""points of test accuracy that a choice may lose and still count as right"""
KEPT = ("validation", "validation_temperature", "validation_as_trained", "validation_accuracy", "accuracy")


@cache
def data_of(name: str) -> Dataset:
    """Return a data set; of MNIST's training images the first 4,000."""
    data = load(Config.load(overrides=[f"data.name={name}"]).data)
    return data if name != "mnist" else replace(data, inputs=data.inputs[:4000], labels=data.labels[:4000])


def search(case: Case) -> dict[str, Any]:
    """Run a case; return what was measured of every combination in every seed."""
    config = Config.load(preset=case.preset, overrides=case.settings)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        tuning = tune(config, case.over, SEEDS, data=data_of(config.data.name), out=folder)
        trials = []
        for trial in tuning.trials:
            runs = []
            for seed in SEEDS if trial.error is None else ():
                directory = RunDirectory(Path(folder) / f"{folder_name(trial.settings)}-seed{seed}")
                last = directory.rounds()[-1]
                runs.append({key: last[key] for key in KEPT})
            trials.append({"settings": list(trial.settings), "error": trial.error, "runs": runs})
    return {
        "case": case.name,
        "tried": case.tried,
        "seconds": round(time.process_time() - started, 1),
        "trials": trials,
    }


def mean(trial: dict[str, Any], key: str) -> float:
    """Return the mean of a measurement over seeds."""
    return statistics.fmean(run[key] for run in trial["runs"])


def verdict(case: dict[str, Any]) -> dict[str, Any]:
    """Return what the choices of a case lose against the best by test accuracy, in points."""
    fine = [trial for trial in case["trials"] if trial["error"] is None]
    test = [100 * mean(trial, "accuracy") for trial in fine]

    def lost(chosen: dict[str, Any]) -> float:
        return max(test) - test[fine.index(chosen)]

    score = [-mean(trial, "validation") for trial in fine]
    return {
        "combinations": len(case["trials"]),
        "best": max(test),
        "lost": lost(min(fine, key=lambda trial: mean(trial, "validation"))),
        "lost_as_trained": lost(min(fine, key=lambda trial: mean(trial, "validation_as_trained"))),
        "lost_by_labels": lost(max(fine, key=lambda trial: mean(trial, "validation_accuracy"))),
        "rank_correlation": float(spearmanr(score, test).statistic),
    }


def markdown(found: list[dict[str, Any]]) -> str:
    """Return one line per case, and how many choices are near the best."""
    lines = [
        "| case | combinations | best by test | lost by score | at temperature 1 | "
        "lost by labelled hold-out | rank correlation |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    verdicts = [(case, verdict(case)) for case in found]
    for case, v in verdicts:
        name = case["case"] if case["tried"] else f"{case['case']} *"
        lines.append(
            f"| {name} | {v['combinations']} | {v['best']:.2f} % | {v['lost']:.2f} | {v['lost_as_trained']:.2f} | "
            f"{v['lost_by_labels']:.2f} | {v['rank_correlation']:+.2f} |"
        )
    lines.append("")
    for text, tried in (("the rule was made with", True), ("it was not made with (*)", False)):
        group = [v for case, v in verdicts if case["tried"] == tried]
        if group:
            near, as_trained, labels = (
                sum(v[key] <= NEAR for v in group) for key in ("lost", "lost_as_trained", "lost_by_labels")
            )
            lines.append(
                f"- Cases that {text}: within {NEAR} points of the best in {near} of {len(group)} by the score, "
                f"in {as_trained} at temperature 1, in {labels} by accuracy on the labelled hold-out."
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing."""
    file = HERE / "agreement.json"
    found: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    done = {case["case"] for case in found}
    for case in CASES:
        if case.name in done:
            continue
        found.append(search(case))
        found.sort(key=lambda one: [known.name for known in CASES].index(one["case"]))
        file.write_text(json.dumps(found) + "\n")
        print(case.name, file=sys.stderr, flush=True)
    (HERE / "agreement.md").write_text(markdown(found))


if __name__ == "__main__":
    main()
