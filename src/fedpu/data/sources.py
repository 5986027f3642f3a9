"""The data sets that are known by name, and loading one or a user's own."""

from __future__ import annotations

from pathlib import Path

from fedpu.data.cifar10 import CIFAR10
from fedpu.data.dataset import Dataset
from fedpu.data.digits import DIGITS
from fedpu.data.fashion_mnist import FASHION_MNIST
from fedpu.data.mnist import MNIST
from fedpu.data.mnist_5k import MNIST_5K
from fedpu.data.own import read_folder, read_npz
from fedpu.data.pooled import pooled
from fedpu.data.reader import READERS, read_with
from fedpu.data.settings import DataSettings, data_directory, expand
from fedpu.data.source import Source
from fedpu.errors import ConfigError, DataError, did_you_mean
from fedpu.registry import Registry

FROM_PYTHON = "python:"
"""what the name of data that were handed over in Python begins with in a recorded configuration"""

SOURCES: Registry[Source] = Registry(
    "data set", {source.name: source for source in (DIGITS, MNIST_5K, MNIST, FASHION_MNIST, CIFAR10)}
)


def load(settings: DataSettings) -> Dataset:
    """Return the data that the settings name, fetching a known data set's files when they are not there."""
    data = _read(settings)
    return data if settings.pooled is None else pooled(data, *settings.pooled)


def _read(settings: DataSettings) -> Dataset:
    if settings.name.startswith(FROM_PYTHON):
        raise DataError(
            f"The data of this run, '{settings.name.removeprefix(FROM_PYTHON)}', came from Python and are not on "
            "disk. Use fedpu.resume(run, data=…) from Python, or give --data to evaluate."
        )
    path = expand(settings.name)
    if settings.name not in SOURCES and path.is_dir():
        return read_folder(path, settings.image_size, settings.test_fraction)
    if settings.name not in SOURCES and settings.name in READERS and not path.exists():
        return read_with(settings)
    if settings.image_size is not None:
        raise ConfigError(
            f"data.image_size is for folders of images, and data.name = '{settings.name}' is not one. Remove it."
        )
    if settings.name in SOURCES:
        return SOURCES[settings.name].load(data_directory(settings.directory))
    if path.suffix.lower() == ".npz":
        return read_npz(path, settings.test_fraction)
    raise ConfigError(
        f"There is no data set called '{settings.name}'.{did_you_mean(settings.name, SOURCES)} "
        f"Known: {', '.join([*SOURCES, *READERS])}; or a path to a .npz file or a folder of images, or your own "
        f"function as {READERS.own}."
    )


def fetch(name: str, directory: Path | None = None) -> Path:
    """Get the files of the data set called ``name``, check them, and return the folder that they are in."""
    return SOURCES[name].fetch(data_directory() if directory is None else directory)
