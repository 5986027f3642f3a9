"""The long runs that docs/aligned.md shows are those that were committed."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNS = [json.loads(line) for line in (ROOT / "results/aligned-views/long.jsonl").read_text("utf-8").splitlines()]
ROUNDS = (50, 100, 150, 200)


def test_the_page_shows_scores_and_accuracies_of_every_run_on_the_first_row() -> None:
    section = (ROOT / "docs/aligned.md").read_text("utf-8").partition("**Long runs on all of MNIST.**")[2]
    lines = [line for line in section.partition("So the tables")[0].splitlines() if line.startswith("| ")]
    shown = [[cell.strip(" *") for cell in line.strip("|").split("|")[1:]] for line in lines]
    measured = []
    for run in RUNS:
        if run["preset"].startswith("table1-row1"):
            curve = {round_: (score, accuracy) for round_, score, accuracy in run["curve"]}
            cells = [f"{curve[after][0]:.4f} ({100 * curve[after][1]:.2f})" for after in ROUNDS]
            measured.append([cell.removeprefix("0") for cell in cells])
    assert [row for row in shown if row[0].startswith(".")] == measured


def test_the_settings_of_the_tables_have_the_best_score() -> None:
    for column in ("aligned", "labelled-only-views", "supervised-views"):
        tried = [run for run in RUNS if run["preset"] == f"table1-row1-{column}"]
        best = min(tried, key=lambda run: run["curve"][-1][1])
        assert {"aggregation.lr=0.05", "augmentation.cutout=0.3"} < set(best["settings"])
