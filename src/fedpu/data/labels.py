"""Labels by name: numbers for classes that a table calls by words, and −1 where a cell is empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpu.errors import DataError

Names = np.ndarray[Any, np.dtype[np.object_]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]

UNLABELLED = -1
MAX_CLASSES = 10_000
MOST_OF_FEW = 20
"""different labels that may occur once or twice each; more of them are amounts or identifiers"""


def is_missing(value: Any) -> bool:
    """Is it an empty cell: None, NaN, pandas' NA or NaT, or nothing but spaces?"""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    try:
        return bool(value != value)  # NaN and NaT
    except TypeError:  # pandas' NA has no truth value
        return True


def names_of(values: Any) -> Names:
    """Return the name of each value as a string, None where there is none; 2.0 is called "2", as 2 is."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        texts = array.astype(str)
        return np.array([str(text) for text in texts], dtype=object)
    return np.array([None if is_missing(value) else _name(value) for value in array.tolist()], dtype=object)


def are_names(values: Any) -> bool:
    """Must labels be read as names? Numbers, also with NaN for missing ones, are class numbers."""
    kind = np.asarray(values).dtype.kind
    return kind in "USOTb"


def numbered(names: Names, classes: Sequence[str] | None, what: str) -> tuple[Numbers, tuple[str, ...]]:
    """Return the class number of each name, −1 where there is none, and the names of the classes in order.

    ``classes`` are those that are known to exist, where that is known. Else they are the names that occur, in the order
    of numbers if all of them are whole numbers, and else of the alphabet. A label of −1 means unlabelled here, too.
    """
    given = [name for name in dict.fromkeys(names.tolist()) if name is not None and name != str(UNLABELLED)]
    if not given:
        raise DataError(f"{what} has no label at all: every cell is empty. Some examples of every class need one.")
    if classes is None:
        ordered = tuple(sorted(given, key=_order(given)))
    else:
        ordered = tuple(str(name) for name in classes)
        strange = [name for name in given if name not in set(ordered)]
        if strange:
            raise DataError(f"{what} has the label '{strange[0]}', which is none of its classes {_listed(ordered)}.")
    labelled = sum(name is not None for name in names.tolist())
    if len(ordered) > MAX_CLASSES or len(given) > max(MOST_OF_FEW, labelled / 2):
        raise DataError(
            f"{what} has {len(given):,} different labels in {labelled:,} labelled rows, such as '{given[0]}' and "
            f"'{given[1]}': these are no classes. Name the column of the classes with data.label."
        )
    place = {name: number for number, name in enumerate(ordered)} | {None: UNLABELLED}
    place.setdefault(str(UNLABELLED), UNLABELLED)
    return np.array([place[name] for name in names.tolist()], dtype=np.int64), ordered


def _name(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _order(names: Sequence[str]) -> Any:
    try:
        numbers = {name: int(name) for name in names}
    except ValueError:
        return None
    return numbers.__getitem__


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:20])
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"
