"""DataFrames of pandas and polars; neither is imported, they are known by what they are."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedpu.data.raw import Raw
from fedpu.data.readers.base import Reader
from fedpu.data.settings import DataSettings
from fedpu.data.table import Column, Table, any_column
from fedpu.errors import DataError


class FrameReader(Reader):
    """A DataFrame; its index plays no part."""

    what: ClassVar[str] = "a DataFrame of pandas or polars"

    def takes(self, given: Any) -> bool:
        """Is it a DataFrame?"""
        return type(given).__name__ == "DataFrame" and _library(given) in ("pandas", "polars")

    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Return the table."""
        names = [str(name) for name in given.columns]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise DataError(f"The DataFrame has two columns called '{twice[0]}'.")
        of = _pandas_column if _library(given) == "pandas" else _polars_column
        keys = dict(zip(names, given.columns, strict=True))
        table = Table.of(names, lambda name: of(given[keys[name]], name))
        classes = _categories(given[keys[settings.label]]) if settings.label in keys else None
        if settings.test is not None:
            raise DataError("data.test is the path of a file, and goes with data that are a file.")
        return Raw("DataFrame", table, classes=classes)


def _library(given: Any) -> str:
    return type(given).__module__.partition(".")[0]


def _pandas_column(series: Any, name: str) -> Column:
    kind = series.dtype
    if getattr(kind, "kind", "O") in "iuf" and str(kind) != "category":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return any_column(series.to_numpy(dtype=object) if kind.kind not in "mM" else series.to_numpy(), name, "DataFrame")


def _polars_column(series: Any, name: str) -> Column:
    if series.dtype.is_numeric():
        return any_column(
            np.array([np.nan if value is None else value for value in series.to_list()]), name, "DataFrame"
        )
    if series.dtype.is_temporal():
        return any_column(np.zeros(0, dtype="datetime64[s]"), name, "DataFrame")
    return any_column(series.to_list(), name, "DataFrame")


def _categories(series: Any) -> list[str] | None:
    """Return the classes of a categorical column of pandas, those that nobody has among them."""
    categories = getattr(series.dtype, "categories", None)
    if str(series.dtype) != "category" or categories is None:
        return None
    return [str(name) for name in categories]
