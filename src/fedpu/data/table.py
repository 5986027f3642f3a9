"""A table in memory: columns by name, each of numbers, of words, or of lists of numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpu.data.labels import is_missing
from fedpu.errors import DataError, did_you_mean

Column = np.ndarray[Any, np.dtype[Any]]
"""``float64`` with NaN for missing numbers, or objects: strings, or lists of numbers, with None for missing ones"""

MISSING_NUMBERS = frozenset({"", "na", "n/a", "nan", "null"})
"""what stands for a missing number in a text file, in small letters; of words, only an empty cell is missing"""
_DECIMAL_COMMA = re.compile(r"^\s*[-+]?\d+,\d+\s*$")


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of one length, by name."""

    columns: dict[str, Column]
    refused: dict[str, str] = field(default_factory=dict)
    """columns that can't be used, and why, which matters only to who needs them"""

    @classmethod
    def of(cls, names: Iterable[str], column: Callable[[str], Column]) -> Table:
        """Return the table whose columns a function gives; those of which it raises an error are refused."""
        columns: dict[str, Column] = {}
        refused: dict[str, str] = {}
        for name in names:
            try:
                columns[name] = column(name)
            except DataError as error:
                refused[name] = str(error)
        return cls(columns, refused)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def take(self, rows: Any) -> Table:
        """Return some of the rows."""
        return Table({name: column[rows] for name, column in self.columns.items()}, self.refused)

    def without(self, names: Iterable[str]) -> Table:
        """Return the table without some of its columns."""
        left_out = set(names)
        return Table(
            {name: column for name, column in self.columns.items() if name not in left_out},
            {name: why for name, why in self.refused.items() if name not in left_out},
        )

    def column(self, name: str, what: str, setting: str) -> Column:
        """Return a column, or say which there are and which setting names it."""
        if name in self.refused:
            raise DataError(self.refused[name])
        if name not in self.columns:
            shown = ", ".join(f"'{other}'" for other in list(self.columns)[:30])
            raise DataError(
                f"{what} has no column '{name}'.{did_you_mean(name, self.columns)} Its columns: {shown}. Say which one "
                f"it is with --set {setting}=NAME."
            )
        return self.columns[name]


def is_numbers(column: Column) -> bool:
    """Does a column hold numbers?"""
    return column.dtype.kind == "f"


def is_lists(column: Column) -> bool:
    """Does a column hold a list of numbers in each row?"""
    if column.dtype.kind != "O":
        return False
    first = next((value for value in column if value is not None), None)
    return isinstance(first, list | tuple | np.ndarray)


def text_column(cells: Sequence[str], name: str, what: str) -> Column:
    """Return a column of a text file: numbers if all cells but missing ones are, else words."""
    filled = ["nan" if cell.strip().lower() in MISSING_NUMBERS else cell for cell in cells]
    try:
        return np.array(filled, dtype=np.str_).astype(np.float64)
    except ValueError:
        pass
    words = [None if not cell.strip() else cell.strip() for cell in cells]
    given = [word for word in words if word is not None]
    if all(_DECIMAL_COMMA.match(word) for word in given):
        raise DataError(
            f"{what}: the column '{name}' has numbers with a decimal comma, such as '{given[0]}'. Write them with a "
            "point."
        )
    return np.array(words, dtype=object)


def any_column(values: Any, name: str, what: str) -> Column:
    """Return values of any kind as a column: an array, or a list of numbers, words, lists and None."""
    if hasattr(values, "to_numpy"):  # a column of a DataFrame
        values = values.to_numpy()
    array = values if isinstance(values, np.ndarray) else _objects(values)
    if array.dtype.kind in "iuf":
        return array.astype(np.float64)
    if array.dtype.kind in "mM":
        raise _refused(name, what, "dates or times")
    items = [_plain(value) for value in array.tolist()] if array.dtype.kind != "O" else [_plain(v) for v in array]
    kinds = {type(item) for item in items if item is not None}
    if kinds <= {bool} and kinds:  # words, as they are in a text file
        return _objects([None if item is None else str(item) for item in items])
    if kinds <= {int, float, bool}:
        return np.array([np.nan if item is None else float(item) for item in items], dtype=np.float64)
    if kinds <= {str}:
        return _objects(items)
    if kinds <= {np.ndarray}:
        return _objects(items)
    if kinds <= {str, int, float, bool}:  # words and numbers in one column
        return _objects([None if item is None else str(item) for item in items])
    raise _refused(name, what, " and ".join(sorted(kind.__name__ for kind in kinds)))


def of_columns(columns: Mapping[str, Any], what: str) -> Table:
    """Return a table of columns of any kind."""
    named = {str(name): values for name, values in columns.items()}
    return Table.of(named, lambda name: any_column(named[name], name, what))


def matrix(column: Column, name: str, what: str) -> Column:
    """Return a column of lists as one array; lists of token ids may differ in length and are filled up with 0."""
    absent = [row for row, value in enumerate(column) if value is None or len(value) == 0]
    if absent:
        raise DataError(f"{what}: the column '{name}' has no list of numbers in row {absent[0]}.")
    whole = all(value.dtype.kind in "iu" for value in column)
    longest = max(len(value) for value in column)
    if not whole and any(len(value) != longest for value in column):
        raise DataError(f"{what}: the lists in the column '{name}' have different lengths; only token ids may.")
    filled = np.zeros((len(column), longest), dtype=np.int64 if whole else np.float32)
    for row, value in enumerate(column):
        filled[row, : len(value)] = value
    return filled


def _objects(values: Sequence[Any]) -> Column:
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


def _plain(value: Any) -> Any:
    """Return a cell as a plain value of Python, or as an array where it is a list; None where it is missing."""
    if isinstance(value, list | tuple | np.ndarray):
        found = np.asarray(value)
        return found if found.ndim == 1 and found.dtype.kind in "iuf" else list(value)
    if is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    return value.strip() if isinstance(value, str) else value


def _refused(name: str, what: str, kinds: str) -> DataError:
    return DataError(
        f"{what}: the column '{name}' holds {kinds}, which are neither numbers nor words. Turn it into numbers, or "
        f"leave it out with --set 'data.ignore=[\"{name}\"]'."
    )
