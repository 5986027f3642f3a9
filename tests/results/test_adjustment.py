"""The table of docs/aligned.md on the shares r shows what was measured."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOUND = [json.loads(line) for line in (ROOT / "results/aligned-parts/adjustment.jsonl").read_text("utf-8").splitlines()]
WAYS = ("s", "s/min(π, 1/2C)", "s/min(π, 1/C)", "s/π", "none")
SETTINGS = {
    "quickstart": "quickstart",
    "five classes a client": "quickstart, five classes a client",
    "Dirichlet .5": "quickstart, Dirichlet .5",
    "table 11, first row": "table 11, row 1",
    "Dirichlet .5, eight seeds": "quickstart, Dirichlet .5, all data",
    "table 5, second row (FedMatch's split)": "table 5, row 2",
    "table 5, fourth row": "table 5, row 4",
}


def cells() -> dict[str, list[str]]:
    """The rows of the table, by their first column."""
    section = (ROOT / "docs/aligned.md").read_text("utf-8").partition("**The shares r.**")[2]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:9]
    return {first.strip(): [cell.strip() for cell in rest] for first, *rest in (x.strip("|").split("|") for x in lines)}


@pytest.mark.parametrize("row", SETTINGS)
def test_the_table_is_what_was_measured(row: str) -> None:
    for shown, way in zip(cells()[row], WAYS, strict=True):
        trials = [one for one in FOUND if (one["setting"], one["adjustment"]) == (SETTINGS[row], way)]
        if not trials:
            assert shown in ("", "the same")
        elif "scores" in trials[0]:
            best = min(trials, key=lambda trial: statistics.mean(trial["scores"]))
            accuracy = 100 * statistics.mean(best["test_accuracies_not_used"])
            score, _, percent = shown.partition(" (")
            assert score == f"{statistics.mean(best['scores']):.4f}"[1:]
            assert float(percent.strip(")")) == pytest.approx(accuracy, abs=0.0501)
        else:
            accuracies = [100 * value for value in trials[0]["test_accuracies"]]
            spread = f" ± {statistics.stdev(accuracies):.1f}" if "seeds" in row else ""
            assert shown == f"{statistics.mean(accuracies):.1f}{spread}"
