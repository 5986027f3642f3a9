"""Datasets of Hugging Face's library, which is not imported: they are known by their columns and features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedpu.data.labels import names_of
from fedpu.data.raw import CLIENT, Raw, owners
from fedpu.data.readers.base import Reader
from fedpu.data.readers.torch_dataset import stacked
from fedpu.data.settings import DataSettings
from fedpu.data.table import of_columns
from fedpu.errors import DataError


class HuggingFaceReader(Reader):
    """A ``datasets.Dataset``, or a ``DatasetDict`` with ``train`` and, where there is one, ``test``."""

    what: ClassVar[str] = "a datasets.Dataset of Hugging Face"

    def takes(self, given: Any) -> bool:
        """Is it one of them?"""
        if isinstance(given, Mapping):
            return bool(given) and all(map(_is_dataset, given.values()))
        return _is_dataset(given)

    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Return the table, or images where a column has them."""
        if not isinstance(given, Mapping):
            return _raw(given, settings)
        if "train" not in given:
            raise DataError(f"The DatasetDict has no split 'train'; it has {', '.join(map(repr, given))}.")
        train = _raw(given["train"], settings)
        return replace(train, test=_raw(given["test"], settings)) if "test" in given else train

    def inputs(self, given: Any, settings: DataSettings) -> Raw:
        """Return what there is besides labels."""
        image = _image(given)
        if image is not None:
            return Raw("dataset", _images(given, image))
        return Raw("dataset", of_columns({name: list(given[name]) for name in given.column_names}, "dataset"))


def _is_dataset(given: Any) -> bool:
    return hasattr(given, "column_names") and hasattr(given, "features") and hasattr(given, "__getitem__")


def _raw(given: Any, settings: DataSettings) -> Raw:
    given = given.with_format(None)
    if settings.label not in given.column_names:
        known = ", ".join(f"'{name}'" for name in given.column_names)
        raise DataError(f"The dataset has no column '{settings.label}'; it has {known}. Say which with label=….")
    classes = getattr(given.features[settings.label], "names", None)
    y = list(given[settings.label])
    if classes is not None:  # −1 is how the library itself writes that there is no label
        y = [None if label is None or label < 0 else classes[label] for label in y]
    image = _image(given)
    column = settings.client or (CLIENT if CLIENT in given.column_names else None)
    if column is not None and column not in given.column_names:
        raise DataError(f"The dataset has no column '{column}', which client names.")
    client = None if column is None else owners(names_of(list(given[column])), column, "dataset")
    if image is not None:
        return Raw("dataset", _images(given, image), names_of(y), client, classes)
    others = {name: list(given[name]) for name in given.column_names if name not in (settings.label, column)}
    return Raw("dataset", of_columns(others, "dataset"), names_of(y), client, classes)


def _image(given: Any) -> str | None:
    return next((name for name, kind in given.features.items() if type(kind).__name__ == "Image"), None)


def _images(given: Any, name: str) -> Any:
    images = list(given[name])
    modes = {image.mode for image in images}
    mode = "L" if modes <= {"L", "1"} else "RGB"
    return stacked([np.asarray(image.convert(mode)) for image in images], "the dataset")
