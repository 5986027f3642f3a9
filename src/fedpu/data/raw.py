"""From what a reader found to a data set: labels numbered, columns encoded, tests set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpu.data.dataset import Dataset, held_out_rows
from fedpu.data.encoding import Encoding
from fedpu.data.labels import names_of, numbered
from fedpu.data.problems import Problems
from fedpu.data.settings import DataSettings
from fedpu.data.table import Table, is_lists, matrix
from fedpu.errors import DataError

CLIENT = "client"
"""the column that says whose each row is, where the settings name none"""
TOKENS = "input_ids"
"""the column of token ids, as tokenizers call it"""


@dataclass(frozen=True, eq=False)
class Raw:
    """What a reader found."""

    name: str
    x: Any
    """an array, or a :class:`Table`"""
    y: Any = None
    """class numbers or names; None: a column of the table"""
    client: Any = None
    classes: Sequence[str] | None = None
    test: Raw | None = None
    tokens: bool = False


def to_dataset(raw: Raw, settings: DataSettings, encoding: Encoding | None = None) -> Dataset:
    """Return the data set; everything that is wrong with it is said at once.

    ``encoding`` is the rule of an earlier table, to be kept; else the training rows give one.
    """
    if isinstance(raw.x, Table):
        raw = _without_columns(raw, settings)
        if isinstance(raw.x, Table) and not (settings.tokens or raw.tokens):
            return _encoded(raw, settings, encoding)
        if isinstance(raw.x, Table):
            raw = replace(raw, x=table_tokens(raw.x, raw.name))
            if raw.test is not None:
                raw = replace(raw, test=replace(raw.test, x=table_tokens(raw.test.x, raw.test.name)))
    test = raw.test
    x, x_test = raw.x, None if test is None else test.x
    if raw.tokens and test is not None:
        x, x_test = same_width(x, x_test)
    return Dataset.from_arrays(
        x,
        raw.y,
        x_test=x_test,
        y_test=None if test is None else test.y,
        client=raw.client,
        classes=raw.classes,
        test_fraction=settings.test_fraction,
        tokens=settings.tokens or raw.tokens,
        name=raw.name,
    )


def labelled_rows(raw: Raw, settings: DataSettings, encoding: Encoding | None) -> tuple[Any, Any, Encoding | None]:
    """Return inputs, the name of each row's class (None where nobody knows it), and how columns became inputs.

    That is what one client has by itself: it may know a single class, or none, of those that there are.
    """
    if isinstance(raw.x, Table):
        raw = _without_columns(raw, settings)
    x = raw.x
    if isinstance(x, Table) and (settings.tokens or raw.tokens):
        x = table_tokens(x, raw.name)
    elif isinstance(x, Table):
        encoding = encoding or Encoding.of(x, raw.name)
        return encoding.encode(x, raw.name), names_of(raw.y), encoding
    return x, names_of(raw.y), None


def _without_columns(raw: Raw, settings: DataSettings) -> Raw:
    """Return labels, clients and inputs, which are columns of one table, apart."""
    problems = Problems()
    table: Table = raw.x
    if len(table) == 0:
        raise DataError(f"{raw.name} has no rows.")
    y, client = raw.y, raw.client
    taken = [*settings.ignore]
    strange = [name for name in settings.ignore if name not in {*table.columns, *table.refused}]
    if strange:
        problems.add(f"{raw.name} has no column '{strange[0]}', which data.ignore leaves out.")
    known = {*table.columns, *table.refused}
    apart = y is not None
    if apart and settings.label in known:
        problems.add(
            f"{raw.name} has a column '{settings.label}' beside the labels that were handed over: it would be learned "
            "from. Leave one of them out."
        )
    if y is None:
        with problems.collecting():
            y = names_of(table.column(settings.label, raw.name, "data.label"))
        taken.append(settings.label)
    # With labels handed over apart, every column that no setting names is an input, whatever it is called.
    if client is None and (settings.client is not None or (CLIENT in known and not apart)):
        column = settings.client or CLIENT
        with problems.collecting():
            client = owners(names_of(table.column(column, raw.name, "data.client")), column, raw.name)
        taken.append(column)
    left = table.without(taken)
    for why in left.refused.values():
        problems.add(why)
    problems.tell()
    test = None
    if raw.test is not None:
        test_table: Table = raw.test.x
        labels = raw.test.y
        if labels is None:
            labels = names_of(test_table.column(settings.label, raw.test.name, "data.label"))
        kept = [name for name in test_table.columns if name not in left.columns]
        test = replace(raw.test, x=test_table.without(kept), y=labels)
    raw = replace(raw, x=left, y=y, client=client, test=test)
    lists = [name for name, column in left.columns.items() if is_lists(column)]
    return _of_list(raw, TOKENS if TOKENS in lists else lists[0]) if lists else raw


def _of_list(raw: Raw, name: str) -> Raw:
    """Return what was found with one column of lists as its inputs."""
    others = [other for other in raw.x.columns if other != name]
    if others and name != TOKENS:
        raise DataError(
            f"{raw.name}: the column '{name}' holds a list of numbers in each row, which is an input by itself, beside "
            f"'{others[0]}'. Leave the others out with data.ignore."
        )
    x = matrix(raw.x.columns[name], name, raw.name)
    test = raw.test
    if test is not None:
        column = test.x.column(name, test.name, "data.test")
        test = replace(test, x=matrix(column, name, test.name))
    return replace(raw, x=x, test=test, tokens=x.dtype.kind == "i")


def owners(names: Any, column: str, what: str) -> Any:
    """Return whose each row is, refusing rows that are nobody's."""
    absent = [row for row, name in enumerate(names) if name is None]
    if absent:
        raise DataError(
            f"{what}: the column '{column}' is empty in {len(absent)} rows (the first is row {absent[0]}), so that "
            "nobody knows whose they are."
        )
    try:
        return np.array([int(name) for name in names])
    except (ValueError, OverflowError):
        return np.array([str(name) for name in names])


def table_tokens(table: Table, what: str) -> Any:
    """Return the token ids of a table: one column of whole numbers per place, or one column of ids between spaces."""
    if len(table.columns) == 1:
        [(name, column)] = table.columns.items()
        if is_lists(column):
            return matrix(column, name, what)
        if column.dtype.kind == "O":
            return matrix(_split_ids(column, name, what), name, what)
    wrong = [name for name, column in table.columns.items() if column.dtype.kind == "O" or not _whole(column)]
    if wrong or not table.columns:
        named = f"the column '{wrong[0]}' does not" if wrong else "no column does"
        raise DataError(
            f"{what}: with data.tokens every column besides label and client must hold token ids, which are whole "
            f"numbers; {named}."
        )
    return np.stack([column.astype(np.int64) for column in table.columns.values()], axis=1)


def _split_ids(column: Any, name: str, what: str) -> Any:
    found = np.empty(len(column), dtype=object)
    for row, text in enumerate(column):
        try:
            found[row] = np.array([int(part) for part in (text or "").split()], dtype=np.int64)
        except ValueError as error:
            raise DataError(
                f"{what}: with data.tokens the column '{name}' must hold token ids between spaces, such as '12 7 93'; "
                f"row {row} has '{text[:40]}'."
            ) from error
    return found


def _whole(column: Any) -> bool:
    return bool(np.isfinite(column).all() and (column == np.round(column)).all())


def same_width(left: Any, right: Any) -> tuple[Any, Any]:
    """Return two matrices of token ids, the narrower of them filled up with 0."""
    width = max(left.shape[1], right.shape[1])
    wide = [np.pad(ids, ((0, 0), (0, width - ids.shape[1]))) for ids in (left, right)]
    return wide[0], wide[1]


def _encoded(raw: Raw, settings: DataSettings, encoding: Encoding | None) -> Dataset:
    """Return the data set of a table, by the rule of its training rows."""
    problems = Problems()
    labels, classes = np.zeros(0, dtype=np.int64), raw.classes
    with problems.collecting():
        labels, classes = numbered(names_of(raw.y), raw.classes, f"{raw.name}: {settings.label}")
    if len(labels) and len(labels) != len(raw.x):
        problems.add(f"{raw.name}: the table has {len(raw.x)} rows, and {len(labels)} labels were given.")
    if raw.client is not None and len(raw.client) != len(raw.x):
        problems.add(f"{raw.name}: the table has {len(raw.x)} rows, and {len(raw.client)} clients were given.")
    if problems.sentences:
        with problems.collecting():
            Encoding.of(raw.x, raw.name)  # what is wrong with the columns is said, too
        problems.tell()
    if raw.test is None:
        numbers = None if raw.client is None else np.unique(raw.client, return_inverse=True)[1]
        held_out = held_out_rows(labels, settings.test_fraction, raw.name, numbers).numpy()
        train, test = raw.x.take(~held_out), raw.x.take(held_out)
        y, y_test = labels[~held_out], labels[held_out]
        client = None if raw.client is None else np.asarray(raw.client)[~held_out]
    else:
        train, test, y, client = raw.x, raw.test.x, labels, raw.client
        y_test, _ = numbered(names_of(raw.test.y), classes, f"{raw.test.name}: {settings.label}")
    encoding = encoding or Encoding.of(train, raw.name)
    rest: dict[str, Any] = {"test_fraction": 0.0}
    if len(test):
        rest = {"x_test": encoding.encode(test, (raw.test or raw).name), "y_test": y_test}
    data = Dataset.from_arrays(
        encoding.encode(train, raw.name), y, client=client, classes=classes, name=raw.name, **rest
    )
    origin = data.test_origin if raw.test is not None or not len(test) else "set aside"
    return replace(data, encoding=encoding, test_origin=origin)
