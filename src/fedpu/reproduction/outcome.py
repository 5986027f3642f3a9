"""The tables, filled: what the paper has beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpu.comparison import LOWER, UPPER, gap_closed
from fedpu.paper import Cell, Row, Scale, Table
from fedpu.reproduction.plan import run_of


@dataclass(frozen=True)
class CellOutcome:
    """A cell: accuracies in per cent by seed, none where it has not been run."""

    cell: Cell
    accuracies: dict[int, float]
    curves: dict[int, list[tuple[int, float]]]
    gaps: dict[int, float]
    """share of the supervision gap closed, by seed"""
    published_gap: float | None

    @property
    def mean(self) -> float | None:
        """Mean accuracy over the seeds."""
        return statistics.fmean(self.accuracies.values()) if self.accuracies else None

    @property
    def std(self) -> float | None:
        """Standard deviation over the seeds; nothing for fewer than two."""
        return statistics.stdev(self.accuracies.values()) if len(self.accuracies) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in points."""
        return None if self.mean is None else self.mean - self.cell.published

    @property
    def gap(self) -> float | None:
        """Mean share of the supervision gap closed."""
        return statistics.fmean(self.gaps.values()) if self.gaps else None

    def to_dict(self) -> dict[str, Any]:
        """Return the cell as plain data."""
        return {
            "column": self.cell.column.key,
            "published": self.cell.published,
            "accuracy": self.mean,
            "std": self.std,
            "accuracies": self.accuracies,
            "difference": self.difference,
            "gap_closed": self.gap,
            "published_gap_closed": self.published_gap,
        }


@dataclass(frozen=True)
class RowOutcome:
    """A row of a table."""

    row: Row
    cells: list[CellOutcome]


@dataclass(frozen=True)
class TableOutcome:
    """A table at a scale."""

    table: Table
    scale: Scale
    rows: list[RowOutcome]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain data."""
        rows = [{"row": row.row.name, "cells": [cell.to_dict() for cell in row.cells]} for row in self.rows]
        return {"table": self.table.label, "scale": self.scale, "rows": rows}


def outcomes(chosen: Sequence[Table], scale: Scale, seeds: Sequence[int], out: Path) -> list[TableOutcome]:
    """Read what has been measured of the tables."""
    return [TableOutcome(table, scale, [_row(table, row, scale, seeds, out) for row in table.rows]) for table in chosen]


def _row(table: Table, row: Row, scale: Scale, seeds: Sequence[int], out: Path) -> RowOutcome:
    cells = [cell for cell in table.cells() if cell.row is row]
    kept: dict[str, dict[int, dict[str, Any]]] = {}
    for cell in cells:
        found = {seed: run_of(cell, scale, seed, out).outcome() for seed in seeds} if cell.column.available else {}
        kept[cell.column.key] = {seed: outcome for seed, outcome in found.items() if outcome is not None}
    accuracies = {
        key: {seed: 100 * float(outcome["result"]["accuracy"]) for seed, outcome in by_seed.items()}
        for key, by_seed in kept.items()
    }

    def gaps(key: str) -> dict[int, float]:
        lower, upper = accuracies.get(LOWER, {}), accuracies.get(UPPER, {})
        return {
            seed: gap_closed(accuracy, lower[seed], upper[seed])
            for seed, accuracy in accuracies[key].items()
            if key not in (LOWER, UPPER) and seed in lower and seed in upper and lower[seed] != upper[seed]
        }

    def curves(key: str) -> dict[int, list[tuple[int, float]]]:
        return {
            seed: [(int(number), 100 * float(accuracy)) for number, accuracy in outcome["curve"]]
            for seed, outcome in kept[key].items()
        }

    return RowOutcome(
        row,
        [
            CellOutcome(
                cell,
                accuracies[cell.column.key],
                curves(cell.column.key),
                gaps(cell.column.key),
                _published_gap(row, cell.column.key),
            )
            for cell in cells
        ],
    )


def _published_gap(row: Row, key: str) -> float | None:
    if key in (LOWER, UPPER) or LOWER not in row.published or UPPER not in row.published:
        return None
    return gap_closed(row.published[key], row.published[LOWER], row.published[UPPER])
