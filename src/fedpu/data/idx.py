"""The IDX format of MNIST and of the data sets made like it: four files of bytes with a short header."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from fedpu.data.dataset import Dataset, Normalisation
from fedpu.data.files import File, FileSet
from fedpu.errors import DataError

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"

_UNSIGNED_BYTE = 0x08


def idx_files(train_images: str, train_labels: str, test_images: str, test_labels: str) -> tuple[File, ...]:
    """Return the four files, given the SHA-256 of each one's decompressed content."""
    return (
        File(TRAIN_IMAGES, train_images),
        File(TRAIN_LABELS, train_labels),
        File(TEST_IMAGES, test_images),
        File(TEST_LABELS, test_labels),
    )


def parse_idx(content: bytes) -> UInt8[np.ndarray, " ..."]:
    """Return the array of an IDX file of unsigned bytes."""
    zero, kind, dimensions = struct.unpack_from(">HBB", content)
    if zero != 0 or kind != _UNSIGNED_BYTE:
        raise DataError("This is not an IDX file of unsigned bytes.")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def idx_reader(
    files: FileSet, normalisation: Normalisation, classes: tuple[str, ...] | None = None
) -> Callable[[Path], Dataset]:
    """Return the function that reads the four files from a directory."""

    def read(directory: Path) -> Dataset:
        return Dataset.from_arrays(
            parse_idx(files.read(directory, TRAIN_IMAGES)),
            parse_idx(files.read(directory, TRAIN_LABELS)),
            x_test=parse_idx(files.read(directory, TEST_IMAGES)),
            y_test=parse_idx(files.read(directory, TEST_LABELS)),
            classes=classes,
            normalisation=normalisation,
            name=files.name,
        )

    return read
