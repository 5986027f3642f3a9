"""The numbers that docs/cifar.md shows are those of the committed runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/cifar.md").read_text(encoding="utf-8").partition("## The reduced scale")[0]
TRIALS = (
    "fedpu",
    "fedpu-half",
    "fedpu-half-views",
    "fedpu-half-views-weight-decay",
    "aligned-decay",
    "aligned-linear",
    "aligned-views",
    "aligned-views-weight-decay",
)
ROW_OF_ALL_LABELS = {2: 1, 3: 3, 4: 3}
"""where every label is known, a run is that of all rows with its partition"""
OWN = ("", "-lr025", "-lr1", "-clamp-max", "-cross-entropy")
CELLS = {
    "Baseline-1": "row1-positive-only",
    "Baseline-1, stronger": "row1-labelled-only",
    "FedPU": "row1-fedpu",
    "aligned targets": "row1-aligned",
    "Baseline-2": "row1-supervised",
    "Baseline-2, non-iid, ten clients of five classes": "row3-supervised",
}


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by their first column; a repeated one has its number behind it."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    table: dict[str, list[str]] = {}
    for line in lines[2:]:
        first, *others = (cell.strip().strip("*") for cell in line.strip("|").split("|"))
        table[first if first not in table else f"{first} {len(table)}"] = others
    return table


@pytest.mark.parametrize(
    ("heading", "trials", "rounds"),
    [
        ("The recipe", TRIALS, (5, 10, 15, 20, 25)),
        ("FedPU's own settings", [f"fedpu-ten-rounds{name}" for name in OWN], (5, 10)),
        ("FedPU where clients hold five classes", ["fedpu-third-row", "fedpu-third-row-lr02"], (5, 10)),
    ],
    ids=["recipe", "own settings", "third row"],
)
def test_trials(heading: str, trials: list[str], rounds: tuple[int, ...]) -> None:
    shown = list(rows(heading).values())
    assert len(shown) == len(trials)
    for name, cells in zip(trials, shown, strict=True):
        lines = (ROOT / "results/cifar-settings" / name / "rounds.jsonl").read_text().splitlines()
        measured = {one["round"]: one for one in map(json.loads, lines) if "validation" in one}
        for round_, cell in zip(rounds, cells, strict=True):
            one = measured.get(round_)
            expected = f"{one['validation']:.4f} ({100 * one['accuracy']:.1f})".removeprefix("0") if one else ""
            assert cell == expected, (name, round_)


@pytest.mark.parametrize("method", CELLS)
def test_the_curves_of_the_first_row(method: str) -> None:
    run = json.loads((ROOT / f"results/tables/table4-{CELLS[method]}-cpu-seed0.json").read_text())
    curve = {round_: f"{100 * accuracy:.1f}" for round_, accuracy in run["curve"]}
    assert rows("What it reaches")[method][:6] == [curve[round_] for round_ in (5, 10, 15, 20, 25, 30)]


def test_two_learning_rates_of_fedpu() -> None:
    shown = rows("FedPU at both rates")
    for name, row in (("first", 1), ("third", 3)):
        for rate, folder in (("0.05", "cifar-rate"), ("0.02", "tables")):
            run = json.loads((ROOT / f"results/{folder}/table4-row{row}-fedpu-cpu-seed0.json").read_text())
            assert run["config"]["aggregation"]["lr"] == float(rate)
            assert shown[f"{name} row, `lr = {rate}`"] == [f"{100 * accuracy:.1f}" for _, accuracy in run["curve"]]


def test_the_other_rows() -> None:
    columns = ("positive-only", "labelled-only", "fedpu", None, "aligned", "supervised")
    for (_, cells), row in zip(rows("The other rows").items(), (2, 3, 4), strict=True):
        for cell, column in zip(cells, columns, strict=True):
            if not column:  # the paper's
                continue
            run = f"row{ROW_OF_ALL_LABELS[row] if column == 'supervised' else row}-{column}"
            file = ROOT / f"results/tables/table4-{run}-cpu-seed0.json"
            accuracy = f"{100 * json.loads(file.read_text())['result']['accuracy']:.1f}" if file.exists() else ""
            assert cell.strip("*") == accuracy, (row, column)
