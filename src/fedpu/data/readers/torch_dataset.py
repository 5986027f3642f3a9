"""Datasets of PyTorch: anything with a length that gives (x, y) or (x, y, client) for a number."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from fedpu.data.raw import Raw
from fedpu.data.readers.base import Reader
from fedpu.data.settings import DataSettings
from fedpu.errors import DataError


class TorchReader(Reader):
    """A map-style dataset, read as a whole."""

    what: ClassVar[str] = "a torch.utils.data.Dataset of (x, y) or (x, y, client)"

    def takes(self, given: Any) -> bool:
        """Is it one?"""
        return isinstance(given, TorchDataset)

    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Return all of its examples."""
        columns = self._columns(given, least=2)
        client = columns[2] if len(columns) == 3 else None
        classes = getattr(given, "classes", None)
        return Raw(type(given).__name__, columns[0], columns[1], client, classes)

    def inputs(self, given: Any, settings: DataSettings) -> Raw:
        """Return its inputs alone."""
        return Raw(type(given).__name__, self._columns(given, least=1)[0])

    def _columns(self, given: Any, least: int) -> list[Any]:
        if isinstance(given, IterableDataset) or not hasattr(given, "__len__"):
            raise DataError(f"{type(given).__name__} can only be iterated over: give a dataset with a length.")
        if len(given) == 0:
            raise DataError(f"{type(given).__name__} has no examples.")
        if isinstance(given, TensorDataset):
            columns: list[Any] = list(given.tensors)
        else:
            examples = [given[number] for number in range(len(given))]
            rows = [example if isinstance(example, tuple | list) else (example,) for example in examples]
            lengths = {len(row) for row in rows}
            if len(lengths) > 1:
                raise DataError(f"The examples of {type(given).__name__} differ: some have more parts than others.")
            columns = [stacked(column, type(given).__name__) for column in zip(*rows, strict=True)]
        if not least <= len(columns) <= 3:
            raise DataError(
                f"{type(given).__name__} gives {len(columns)} values per example; give (x, y) or (x, y, client)."
            )
        return columns


def stacked(values: tuple[Any, ...] | list[Any], what: str) -> Any:
    """Return one array of the values of all examples: tensors, arrays, images of Pillow, numbers or words."""
    if isinstance(values[0], Tensor):
        shapes = {tuple(value.shape) for value in values}
        if len(shapes) > 1:
            first, second, *_ = sorted(shapes)
            raise DataError(f"The examples of {what} have different shapes, such as {first} and {second}.")
        return torch.stack(list(values))
    arrays = [np.asarray(value) if hasattr(value, "__array__") or hasattr(value, "size") else value for value in values]
    if isinstance(arrays[0], np.ndarray) and len({array.shape for array in arrays}) > 1:
        first, second, *_ = sorted({array.shape for array in arrays})
        raise DataError(f"The examples of {what} have different shapes, such as {first} and {second}.")
    return np.array(arrays)
