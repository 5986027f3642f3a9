"""The tables, filled: what the paper has beside what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from scipy.special import stdtrit  # Student's quantile; scipy.stats has it, too, and takes a second to import

from fedpu.applications.comparison import gap_closed
from fedpu.applications.reproduction.plan import run_of
from fedpu.method import LOWER_ENDS, UPPER
from fedpu.paper import Cell, Column, Row, Scale, Table

ENDS = (*LOWER_ENDS, UPPER)
"""columns between which the supervision gap lies"""


CONFIDENCE = 0.95
"""of the intervals of paired differences"""


class Paired(NamedTuple):
    """A difference between two methods on the same partitions: its mean over seeds, and its interval."""

    mean: float
    interval: tuple[float, float] | None
    """of Student's t, 95 %; None where there is one seed"""
    seeds: int


def paired(differences: Sequence[float]) -> Paired | None:
    """Return mean ± t s / √n of differences, one from each seed; nothing where there are none."""
    if not differences:
        return None
    mean, count = statistics.fmean(differences), len(differences)
    if count == 1:
        return Paired(mean, None, count)
    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    half = quantile * statistics.stdev(differences) / count**0.5
    return Paired(mean, (mean - half, mean + half), count)


@dataclass(frozen=True)
class CellOutcome:
    """A cell: accuracies in per cent by seed, none where it has not been run."""

    cell: Cell
    accuracies: dict[int, float]
    curves: dict[int, list[tuple[int, float]]]
    gaps: dict[int, float]
    """share of the supervision gap closed, by seed"""
    published_gap: float | None
    less_ours: dict[int, float] = field(default_factory=dict)
    """accuracy less that of the paper's own method, by seed that both have; empty for that method itself"""

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
        """What was measured less the paper's number, in points."""
        published = self.cell.published
        return None if self.mean is None or published is None else self.mean - published

    @property
    def paired(self) -> Paired | None:
        """The difference to the paper's own method on the same partitions, in points."""
        return paired(list(self.less_ours.values()))

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
            "less_ours": self.paired._asdict() if self.paired else None,
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

    ends = {*ENDS, *(key for cell in cells for key in cell.column.between)}

    def gaps(column: Column) -> dict[int, float]:
        *below, top = column.between or ENDS
        lower = {seed: best for seed in seeds if (best := _strongest(accuracies, below, seed)) is not None}
        upper = accuracies.get(top, {})
        return {
            seed: gap_closed(accuracy, lower[seed], upper[seed])
            for seed, accuracy in accuracies[column.key].items()
            if column.key not in ends and seed in lower and seed in upper and lower[seed] != upper[seed]
        }

    ours = next((cell.column.key for cell in cells if cell.column.ours), None)

    def less_ours(key: str) -> dict[int, float]:
        own = accuracies[ours] if ours is not None and key != ours else {}
        return {seed: accuracy - own[seed] for seed, accuracy in accuracies[key].items() if seed in own}

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
                gaps(cell.column),
                _published_gap(row, cell.column.key),
                less_ours(cell.column.key),
            )
            for cell in cells
        ],
    )


def _strongest(accuracies: Mapping[str, Mapping[int, float]], keys: Sequence[str], seed: int) -> float | None:
    """Return the accuracy of the best of some columns of a seed, or nothing where none has been run."""
    return max((accuracies[key][seed] for key in keys if seed in accuracies.get(key, {})), default=None)


def _published_gap(row: Row, key: str) -> float | None:
    lower = max((row.published[end] for end in LOWER_ENDS if end in row.published), default=None)
    if key in ENDS or key not in row.published or lower is None or UPPER not in row.published:
        return None
    return gap_closed(row.published[key], lower, row.published[UPPER])
