"""How the columns of a table become a network's inputs, by one rule that is kept with the model.

- A column of numbers is one input. A missing number becomes the median of the training rows, and where the training
  rows miss any, one more input says so: 1 where the number is missing, else 0.
- A column of words is one input per word of the training rows, in the order of the alphabet: 1 for the word that is
  there, else 0. A missing or unknown word is 0 everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpu.data.labels import names_of
from fedpu.data.problems import Problems
from fedpu.data.table import Column, Table, is_numbers
from fedpu.errors import DataError

MAX_WORDS = 1_000
"""different words of a column, above which it is no column of categories"""

Matrix = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers."""

    name: str
    fill: float
    """what stands in for a missing number"""
    marked: bool
    """Does one more input say that it is missing?"""

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        return 1 + self.marked

    def encode(self, column: Column) -> Matrix:
        """Return its inputs."""
        missing = np.isnan(column)
        filled = np.where(missing, self.fill, column)
        with np.errstate(over="ignore"):  # what is too large for 32 bits becomes infinite, which is refused later
            parts = [filled, missing] if self.marked else [filled]
            return np.stack([part.astype(np.float32) for part in parts], axis=1)


@dataclass(frozen=True)
class WordColumn:
    """A column of categories."""

    name: str
    words: tuple[str, ...]

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        return len(self.words)

    def encode(self, column: Column) -> Matrix:
        """Return its inputs."""
        place = {word: number for number, word in enumerate(self.words)}
        names = names_of(column) if is_numbers(column) else column
        found = np.array([place.get(word, -1) for word in names.tolist()])
        there: Matrix = (found[:, None] == np.arange(len(self.words))).astype(np.float32)
        return there


@dataclass(frozen=True)
class Encoding:
    """The rule for all columns of a table, in their order."""

    columns: tuple[NumberColumn | WordColumn, ...]

    @classmethod
    def of(cls, table: Table, what: str) -> Encoding:
        """Return the rule that the training rows give; all columns that can't be used are said at once."""
        problems = Problems()
        columns: list[NumberColumn | WordColumn] = []
        for name, column in table.columns.items():
            with problems.collecting():
                columns.append(_number(name, column, what) if is_numbers(column) else _words(name, column, what))
        problems.tell()
        if not columns:
            raise DataError(f"{what} has no column to learn from besides the label and the client.")
        return cls(tuple(columns))

    @property
    def width(self) -> int:
        """How many inputs a row becomes."""
        return sum(column.width for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def plain(self) -> bool:
        """Is every column one number that is never missing, so that an array of numbers will do in its place?"""
        return all(isinstance(column, NumberColumn) and not column.marked for column in self.columns)

    def encode(self, table: Table, what: str) -> Matrix:
        """Return a row of inputs for each row of a table; columns that the rule does not know are left out."""
        problems = Problems()
        parts: list[Matrix] = []
        for name in self.names:
            if name in table.refused:
                problems.add(table.refused[name])
        absent = [name for name in self.names if name not in {*table.columns, *table.refused}]
        if absent:
            listed = ", ".join(f"'{name}'" for name in absent[:20])
            problems.add(f"{what} has no column {listed}, which the model was trained with.")
        for column in self.columns:
            if column.name not in table.columns:
                continue
            given = table.columns[column.name]
            if isinstance(column, NumberColumn) and not is_numbers(given):
                word = next((value for value in given if value is not None), None)
                if word is not None:
                    problems.add(f"{what}: the column '{column.name}' must hold numbers; it has '{word}'.")
                    continue
                given = np.full(len(given), np.nan)
            parts.append(column.encode(given))
        problems.tell()
        return np.concatenate(parts, axis=1)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the rule as plain data."""
        return [
            {"name": column.name, "fill": column.fill, "marked": column.marked}
            if isinstance(column, NumberColumn)
            else {"name": column.name, "words": list(column.words)}
            for column in self.columns
        ]

    @classmethod
    def from_dict(cls, found: list[dict[str, Any]]) -> Encoding:
        """Read a rule from plain data (ValueError: it is none)."""
        columns: list[NumberColumn | WordColumn] = []
        for column in found:
            if not isinstance(column["name"], str):
                raise ValueError("a column of the encoding has no name")
            if "words" in column:
                if not all(isinstance(word, str) for word in column["words"]):
                    raise ValueError(f"the words of the column '{column['name']}' are not strings")
                columns.append(WordColumn(column["name"], tuple(column["words"])))
            else:
                if not math.isfinite(column["fill"]):
                    raise ValueError(f"the column '{column['name']}' is filled with {column['fill']}")
                columns.append(NumberColumn(column["name"], float(column["fill"]), bool(column["marked"])))
        return cls(tuple(columns))


def _number(name: str, column: Column, what: str) -> NumberColumn:
    missing = np.isnan(column)
    if missing.all():
        raise DataError(f"{what}: the column '{name}' is empty in every row. {_leave_out(name)}")
    return NumberColumn(name, float(np.median(column[~missing])), bool(missing.any()))


def _words(name: str, column: Column, what: str) -> WordColumn:
    words = sorted({value for value in column.tolist() if value is not None})
    if len(words) > MAX_WORDS:
        raise DataError(
            f"{what}: the column '{name}' has {len(words):,} different words, such as '{words[0]}': more than "
            f"{MAX_WORDS:,} are no categories. {_leave_out(name)}"
        )
    return WordColumn(name, tuple(words))


def _leave_out(name: str) -> str:
    return f"Leave it out with --set 'data.ignore=[\"{name}\"]', or make numbers of it."
