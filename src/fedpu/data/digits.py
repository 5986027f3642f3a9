"""scikit-learn's handwritten digits: the smallest real data set, for tests and first runs."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedpu.data.dataset import Dataset
from fedpu.data.source import Source
from fedpu.data.split import every_fifth

_BRIGHTEST = 16


def read(directory: Path) -> Dataset:
    """Return the data set; ``directory`` is not needed, for it comes with scikit-learn."""
    # scikit-learn's own load_digits() takes a second to import, for what is a table of small whole numbers.
    found = find_spec("sklearn")
    assert found is not None, "it installs with fedpu"
    assert found.submodule_search_locations is not None
    packed = Path(found.submodule_search_locations[0], "datasets", "data", "digits.csv.gz").read_bytes()
    table = np.loadtxt(gzip.decompress(packed).decode().splitlines(), delimiter=",", dtype=np.int64)
    pixels, labels = table[:, :-1].reshape(-1, 8, 8), table[:, -1]
    # Bytes, as pictures have them, so that a model can be used on pictures; the 17 shades stay apart.
    images = np.rint(pixels * (255 / _BRIGHTEST)).astype(np.uint8)
    test = every_fifth(labels)
    return Dataset.from_arrays(images[~test], labels[~test], x_test=images[test], y_test=labels[test], name="digits")


DIGITS = Source(
    name="digits",
    description="handwritten digits, the small set that comes with scikit-learn",
    size="1,442 + 355 grey images, 8×8",
    classes=10,
    read=read,
)
