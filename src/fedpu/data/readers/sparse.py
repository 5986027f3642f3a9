"""Sparse matrices of SciPy, such as TF-IDF vectors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedpu.data.raw import Raw
from fedpu.data.readers.base import Reader
from fedpu.data.settings import DataSettings
from fedpu.errors import DataError

MOST_BYTES = 8 * 2**30
"""how large a sparse matrix may become when it is written out, which training does"""


class SparseReader(Reader):
    """A sparse matrix or array of any format; its labels are handed over beside it."""

    what: ClassVar[str] = "a sparse matrix of SciPy"

    def takes(self, given: Any) -> bool:
        """Is it sparse?"""
        return type(given).__module__.startswith("scipy.sparse") and hasattr(given, "toarray")

    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Return it written out, as 32-bit floats."""
        if given.ndim != 2:
            raise DataError(f"A sparse matrix must have two dimensions, examples and features; this has {given.ndim}.")
        rows, columns = given.shape
        needed = rows * columns * 4
        if needed > MOST_BYTES:
            raise DataError(
                f"The sparse matrix has {rows:,} rows and {columns:,} columns: written out it would take "
                f"{needed / 2**30:,.0f} GiB, and training needs it so. Use fewer columns, for example max_features of "
                "the vectorizer, or sklearn.decomposition.TruncatedSVD."
            )
        if given.dtype.kind not in "iufb":
            raise DataError(f"The sparse matrix must hold numbers; it holds {given.dtype}.")
        return Raw("sparse matrix", given.astype(np.float32).toarray())
