"""Parquet, with pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedpu.data.raw import Raw
from fedpu.data.readers.base import FileReader
from fedpu.data.table import Column, Table, any_column
from fedpu.errors import DataError


class ParquetReader(FileReader):
    """A table in a Parquet file."""

    what: ClassVar[str] = "a Parquet file"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def read_file(self, path: Path) -> Raw:
        """Return the table."""
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError as error:
            raise DataError(f"To read {path}, install pyarrow: pip install 'fedpu[tables]'.") from error
        try:
            found = parquet.read_table(path)
        except (pyarrow.ArrowException, OSError) as error:
            first, *_ = str(error).splitlines() or [""]
            raise DataError(f"{path} is not a Parquet file or is damaged ({first}).") from error
        names = found.column_names
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise DataError(f"{path} has two columns called '{twice[0]}'.")
        return Raw(path.name, arrow_table(found, path.name))


def arrow_table(found: Any, what: str) -> Table:
    """Return a table of pyarrow's as ours."""
    return Table.of(found.column_names, lambda name: _column(found.column(name), name, what))


def _column(found: Any, name: str, what: str) -> Column:
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    if types.is_integer(found.type) or types.is_floating(found.type):
        numbers = found.cast(pyarrow.float64(), safe=False).to_numpy()
        return np.array(numbers, dtype=np.float64)
    if types.is_temporal(found.type):
        return any_column(np.zeros(0, dtype="datetime64[s]"), name, what)
    if types.is_decimal(found.type):
        return any_column([None if value is None else float(value) for value in found.to_pylist()], name, what)
    return any_column(found.to_pylist(), name, what)
