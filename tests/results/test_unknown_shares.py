"""The table of estimated shares on clients of few classes, in docs/aligned.md, is that of the committed runs."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNS = [json.loads(line) for line in (ROOT / "results/aligned-parts/unknown-shares.jsonl").read_text().splitlines()]
PAGE = (ROOT / "docs/aligned.md").read_text(encoding="utf-8").partition("## Estimated shares, and clients of few")[2]


def accuracy(preset: str, round_: int, *settings: str) -> str:
    (curve,) = [run["accuracies"] for run in RUNS if run["preset"] == preset and run["set"] == list(settings)]
    return f"{100 * dict(curve)[round_]:.1f}"


@pytest.mark.parametrize("row", [1, 2, 3, 4])
def test_a_row_of_table_3(row: int) -> None:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| row {row}:")]
    cells = [cell.strip() for cell in line.strip("|").split("|")][1:]
    expected = [
        accuracy(f"table3-row{row}-{method}-quick", 20, f"priors.source={source}")
        for method in ("aligned", "fedpu")
        for source in ("known", "estimated")
    ]
    assert cells == expected


def test_long_runs() -> None:
    name, sixty = "table3-row4-aligned", "aggregation.rounds=60"
    known, estimated, pooled = (
        accuracy(f"{name}-quick", 60, f"priors.source={source}", sixty) for source in ("known", "estimated", "global")
    )
    early, late = (accuracy(name, round_, "priors.source=estimated") for round_ in (15, 160))
    text = " ".join(PAGE.split())
    assert f"({estimated} % after 60, where known shares have {known} and the federation's {pooled})" in text
    assert f"ruin it: {early} % after 15 rounds, {late} after 160" in text


def test_alike_clients() -> None:
    presets = {run["preset"] for run in RUNS if "-aligned-quick" in run["preset"] and "table3" not in run["preset"]}
    costs = {
        preset: float(accuracy(preset, 20, "priors.source=known"))
        - float(accuracy(preset, 20, "priors.source=estimated"))
        for preset in presets
    }
    assert len(costs) == 14
    assert round(statistics.mean(costs.values()), 1) == 0.4
    assert max(costs, key=lambda preset: costs[preset]) == "table2-row4-aligned-quick"
    assert round(costs["table2-row4-aligned-quick"], 1) == 2.0
