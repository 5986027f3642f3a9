"""Arrays in memory: NumPy, PyTorch or nested lists."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from fedpu.data.raw import Raw
from fedpu.data.readers.base import Reader
from fedpu.data.settings import DataSettings
from fedpu.data.table import Table


class ArrayReader(Reader):
    """An array, whose labels are handed over beside it, or a table that was read already."""

    what: ClassVar[str] = "an array of NumPy or PyTorch, or nested lists"

    def takes(self, given: Any) -> bool:
        """Is it one?"""
        return isinstance(given, np.ndarray | Tensor | list | tuple | Table) or hasattr(given, "__array__")

    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Return it as it is."""
        return Raw("arrays", given)
