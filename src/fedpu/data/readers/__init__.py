"""The forms in which data come, one file for each: the first that takes what is given reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpu.data.readers.arrays import ArrayReader
from fedpu.data.readers.base import FileReader, Reader
from fedpu.data.readers.csv_file import CSVReader
from fedpu.data.readers.folder import FolderReader
from fedpu.data.readers.frame import FrameReader
from fedpu.data.readers.hugging_face import HuggingFaceReader
from fedpu.data.readers.npz import NpyReader, NpzReader
from fedpu.data.readers.parquet import ParquetReader
from fedpu.data.readers.sparse import SparseReader
from fedpu.data.readers.torch_dataset import TorchReader
from fedpu.errors import DataError
from fedpu.registry import Registry

READERS: Registry[type[Reader]] = Registry(
    "reader",
    {
        "csv": CSVReader,
        "parquet": ParquetReader,
        "npz": NpzReader,
        "npy": NpyReader,
        "folder": FolderReader,
        "frame": FrameReader,
        "sparse": SparseReader,
        "torch": TorchReader,
        "hugging-face": HuggingFaceReader,
        "arrays": ArrayReader,  # last: it takes whatever can become an array
    },
    group="fedpu.readers",
    base=Reader,
)


def reader_for(given: Any) -> Reader | None:
    """Return the reader that takes what is given, or None."""
    readers = (READERS[name]() for name in READERS)
    return next((reader for reader in readers if reader.takes(given)), None)


def need_reader(given: Any) -> Reader:
    """Return the reader that takes what is given, or say what is read."""
    found = reader_for(given)
    if found is None:
        shown = given if isinstance(given, Path) else f"An object of type {type(given).__name__}"
        forms = "; ".join(READERS[name].what for name in READERS)
        raise DataError(f"{shown} can't be read. What is: {forms}.")
    return found


__all__ = ["READERS", "FileReader", "Reader", "need_reader", "reader_for"]
