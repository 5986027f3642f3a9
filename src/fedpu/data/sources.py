"""The data sets that are known by name, and loading one or a user's own."""

from __future__ import annotations

import reprlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedpu.data.cifar10 import CIFAR10
from fedpu.data.dataset import Dataset
from fedpu.data.digits import DIGITS
from fedpu.data.encoding import Encoding
from fedpu.data.fashion_mnist import FASHION_MNIST
from fedpu.data.functions import FUNCTIONS, read_with
from fedpu.data.mnist import MNIST
from fedpu.data.mnist_5k import MNIST_5K
from fedpu.data.pooled import pooled
from fedpu.data.raw import Raw, to_dataset
from fedpu.data.readers import READERS, FileReader, need_reader, reader_for
from fedpu.data.readers.folder import FolderReader
from fedpu.data.settings import DataSettings, data_directory, expand
from fedpu.data.source import Source
from fedpu.data.table import Table
from fedpu.errors import ConfigError, DataError, did_you_mean
from fedpu.registry import Registry

FROM_PYTHON = "python:"
"""what the name of data that were handed over in Python begins with in a recorded configuration"""

SOURCES: Registry[Source] = Registry(
    "data set", {source.name: source for source in (DIGITS, MNIST_5K, MNIST, FASHION_MNIST, CIFAR10)}
)


def load(settings: DataSettings | str, encoding: Encoding | None = None) -> Dataset:
    """Return the data that the settings name, fetching a known data set's files when they are not there.

    A name alone, such as ``"digits"``, has all other settings at their defaults. ``encoding`` is how the columns of a
    table become inputs, where a model has that rule already.
    """
    if isinstance(settings, str):
        settings = DataSettings(name=settings)
    data = _read(settings, encoding)
    return data if settings.pooled is None else pooled(data, *settings.pooled)


def _read(settings: DataSettings, encoding: Encoding | None) -> Dataset:
    if settings.name.startswith(FROM_PYTHON):
        raise DataError(
            f"The data of this run, '{settings.name.removeprefix(FROM_PYTHON)}', came from Python and are not on "
            "disk. Use fedpu.resume(run, data=…) from Python, or give --data to evaluate."
        )
    path = expand(settings.name)
    if settings.name not in SOURCES and settings.name in FUNCTIONS and not path.exists():
        return read_with(settings)
    if settings.image_size is not None and not path.is_dir():
        raise ConfigError(
            f"data.image_size is for folders of images, and data.name = '{settings.name}' is not one. Remove it."
        )
    if settings.name in SOURCES:
        return SOURCES[settings.name].load(data_directory(settings.directory))
    reader = reader_for(path)
    if reader is not None:
        return to_dataset(reader.read(path, settings), settings, encoding)
    if path.exists():
        raise DataError(f"{path} can't be read as data. What is: {_file_forms()}.")
    raise ConfigError(
        f"There is no data set called '{settings.name}'.{did_you_mean(settings.name, SOURCES)} "
        f"Known: {', '.join([*SOURCES, *FUNCTIONS])}; or a path to a CSV, Parquet or .npz file or a folder of images, "
        f"or your own function as {FUNCTIONS.own}."
    )


def read(
    source: Any,
    y: Any = None,
    *,
    client: Any = None,
    x_test: Any = None,
    y_test: Any = None,
    name: str | None = None,
    **settings: Any,
) -> Dataset:
    """Return data of any form as a data set: a path, a DataFrame of pandas or polars, a sparse matrix, a torch or
    Hugging Face dataset, or arrays.

    ``y`` are the labels and ``client`` says whose each example is, where they are not part of ``source``; ``client``
    may also name a column of it. ``x_test`` and ``y_test`` are a test set, all of it labelled. ``settings`` are
    those of ``[data]``, such as ``label``, ``ignore``, ``tokens``, ``test`` and ``test_fraction``.
    """
    if isinstance(client, str):
        settings, client = settings | {"client": client}, None
    wanted = _settings(settings)
    if isinstance(source, str):
        source = expand(source)
    found = need_reader(source).inputs(source, wanted) if y is not None else need_reader(source).read(source, wanted)
    if y is None and found.y is None and not isinstance(found.x, Table):
        raise DataError(f"{found.name}: the labels are missing. Hand them over as y, with −1 for unlabelled.")
    raw = replace(
        found,
        name=name or found.name,
        y=found.y if y is None else y,
        client=found.client if client is None else client,
        test=_test(x_test, y_test, wanted) or found.test,
    )
    return to_dataset(raw, wanted)


def _test(x: Any, y: Any, settings: DataSettings) -> Raw | None:
    """Return a test set that was handed over; its labels may be a column of it."""
    if x is None and y is not None:
        raise DataError("There are labels y_test, and no x_test that they belong to.")
    if x is None:
        return None
    reader = need_reader(x)
    found = reader.read(x, settings) if y is None else replace(reader.inputs(x, settings), y=y)
    if found.y is None and not isinstance(found.x, Table):
        raise DataError("x_test has no labels: hand them over as y_test.")
    return replace(found, name=f"test rows of {found.name}")


def _settings(given: dict[str, Any]) -> DataSettings:
    """Return settings of ``[data]``, or say in a sentence what is wrong with them."""
    try:
        return DataSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        near = did_you_mean(key, DataSettings.model_fields) if key not in DataSettings.model_fields else ""
        raise ConfigError(
            f"{key} = {reprlib.repr(given.get(key))} can't be used to read data: {first['msg']}.{near}"
        ) from error


def _file_forms() -> str:
    forms = (READERS[name] for name in READERS)
    return "; ".join(form.what for form in forms if issubclass(form, FileReader | FolderReader))


def fetch(name: str, directory: Path | None = None) -> Path:
    """Get the files of the data set called ``name``, check them, and return the folder that they are in."""
    return SOURCES[name].fetch(data_directory() if directory is None else directory)
