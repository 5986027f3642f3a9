"""scikit-learn's handwritten digits: the smallest real data set, for tests and first runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpu.data.dataset import Dataset
from fedpu.data.source import Source
from fedpu.data.split import every_fifth

_BRIGHTEST = 16


def read(directory: Path) -> Dataset:
    """Return the data set; ``directory`` is not needed, for it comes with scikit-learn."""
    # scikit-learn takes a second to import, which only those who use it should pay.
    from sklearn.datasets import load_digits

    found = load_digits()
    # Bytes, as pictures have them, so that a model can be used on pictures; the 17 shades stay apart.
    images, labels = np.rint(found.images * (255 / _BRIGHTEST)).astype(np.uint8), found.target
    test = every_fifth(labels)
    return Dataset.from_arrays(images[~test], labels[~test], x_test=images[test], y_test=labels[test], name="digits")


DIGITS = Source(
    name="digits",
    description="handwritten digits, the small set that comes with scikit-learn",
    size="1,442 + 355 grey images, 8×8",
    classes=10,
    read=read,
)
