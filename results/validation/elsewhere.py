"""How well the score chose on Fashion-MNIST and CIFAR-10: from the searches whose results are kept beside this folder.

``python results/validation/elsewhere.py`` reads them and writes ``elsewhere.md``. Nothing is trained. Combinations that
were dropped on the way are left out, since nobody knows how they would have ended.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

from scipy.stats import spearmanr

HERE = Path(__file__).parent
RESULTS = HERE.parent
NEAR = 0.3
"""points of test accuracy that a choice may lose and still count as right"""
Ends = list[tuple[float, float]]
"""score and test accuracy of every combination"""


def garments() -> dict[str, Ends]:
    """Return the searches of ``fedpu tune`` on Fashion-MNIST that showed the test accuracy."""
    folders = ("aligned-views", "learning-rates", "rivals-settings")
    searches = {}
    for file in sorted(file for folder in folders for file in (RESULTS / folder).glob("*.json")):
        tuning = json.loads(file.read_text("utf-8"))
        if tuning.get("config", {}).get("data", {}).get("name") != "fashion-mnist":
            continue
        trials = [trial for trial in tuning["trials"] if trial.get("test_accuracies_not_used")]
        most = max(trial["rounds"] for trial in trials)
        ends = [
            (trial["score"], mean(trial["test_accuracies_not_used"])) for trial in trials if trial["rounds"] == most
        ]
        if len(ends) > 1:
            searches[f"{file.parent.name}/{file.stem}"] = ends
    return searches


def photographs() -> dict[int, Ends]:
    """Return score and accuracy of all trials on the first row of CIFAR-10's table, by round."""
    rounds = defaultdict(list)
    files = (RESULTS / "cifar-settings").glob("*/rounds.jsonl")
    for file in sorted(file for file in files if "third-row" not in file.parent.name):
        for line in map(json.loads, file.read_text("utf-8").splitlines()):
            if line.get("validation") is not None:
                rounds[line["round"]].append((line["validation"], line["accuracy"]))
    return {number: rounds[number] for number in (5, 10, 15, 20, 25)}


def lost(ends: Ends) -> float:
    """Return the points of test accuracy between the best combination and the one with the best score."""
    return 100 * (max(accuracy for _, accuracy in ends) - min(ends)[1])


def correlation(ends: Ends) -> float:
    """Return the rank correlation of low score and high accuracy."""
    scores, accuracies = zip(*ends, strict=True)
    return float(spearmanr([-score for score in scores], accuracies).statistic)


def page() -> str:
    """Return both tables."""
    searches = garments()
    near = sum(lost(ends) <= NEAR + 1e-9 for ends in searches.values())
    lines = [
        "| Fashion-MNIST: search | combinations | best by test | lost by score |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {name} | {len(ends)} | {max(accuracy for _, accuracy in ends):.2%} | {lost(ends):.2f} |"
            for name, ends in searches.items()
        ),
        "",
        f"Within {NEAR} points of the best in {near} of {len(searches)}.",
        "",
        "| CIFAR-10: trials of the recipe | trials | best by test | lost by score | rank correlation |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| after {number} rounds | {len(ends)} | {max(accuracy for _, accuracy in ends):.2%} | {lost(ends):.2f} | "
            f"{correlation(ends):+.2f} |"
            for number, ends in photographs().items()
        ),
    ]
    return "\n".join(lines).replace("%", " %") + "\n"


if __name__ == "__main__":
    (HERE / "elsewhere.md").write_text(page(), "utf-8")
