"""The page says of suggested methods what was measured, and the suggestion follows from it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from fedpu.method import SUGGESTED

ROOT = Path(__file__).parents[2]
CELLS = json.loads((ROOT / "results/suggestion/cells.json").read_text())
PAGE = (ROOT / "docs/your-data.md").read_text("utf-8").replace("**", "")
COLUMNS = ("aligned", "labelled-only", "positive-only", "fedpu")


def mean(key: str, method: str, table: str | None = None) -> float:
    return statistics.fmean(cell[key] for cell in CELLS if cell["method"] == method and table in (None, cell["table"]))


def test_the_table_has_the_recorded_numbers() -> None:
    rows = {row.split(" | ")[0].strip("| "): row for row in PAGE.splitlines() if row.startswith("| ")}
    for name in dict.fromkeys(cell["table"] for cell in CELLS):
        row = next(text for start, text in rows.items() if start.startswith(name))
        scores = [f"{mean('validation', method, name):.3f}" for method in COLUMNS]
        accuracies = [f"{100 * mean('test_accuracy', method, name):.1f} %" for method in COLUMNS]
        assert " | ".join([*scores, *accuracies]) in row


def test_the_suggested_method_is_that_of_the_best_mean_score() -> None:
    assert min(COLUMNS, key=lambda method: mean("validation", method)) == SUGGESTED
