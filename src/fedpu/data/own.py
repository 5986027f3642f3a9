"""A user's own data: a ``.npz`` file of arrays, or a folder of images with one folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpu.data.dataset import Dataset
from fedpu.data.images import is_image, read_images
from fedpu.errors import DAMAGED_ARCHIVE, DataError

LAYOUT = "<folder>/<class>/<image>, or <folder>/train/<class>/<image> and <folder>/test/<class>/<image>"
KEYS = frozenset({"x", "y", "client", "x_test", "y_test", "classes"})
Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


def read_npz(path: Path, test_fraction: float = 0.2) -> Dataset:
    """Return the data set of a ``.npz`` file with ``x``, ``y`` and any other of ``Dataset.from_arrays``."""
    arrays = load_npz(path, required=("x", "y"))
    classes = arrays.get("classes")
    return Dataset.from_arrays(
        arrays["x"],
        arrays["y"],
        x_test=arrays.get("x_test"),
        y_test=arrays.get("y_test"),
        client=arrays.get("client"),
        classes=None if classes is None else [str(name) for name in classes.reshape(-1)],
        test_fraction=test_fraction,
        name=path.name,
    )


def load_npz(path: Path, required: tuple[str, ...]) -> Arrays:
    """Return the arrays of a ``.npz`` file, never running code that a file may hold (pickles are refused)."""
    if not path.is_file():
        raise DataError(f"There is no file {path}. Give the path of a .npz file.")
    try:
        with open(path, "rb") as file:
            found = np.load(file, allow_pickle=False)
            if not isinstance(found, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is not a .npz file. Write one with numpy.savez(path, x=…, y=…).")
            with found:
                keys = tuple(found.files)
                absent = [key for key in required if key not in keys]
                if absent:
                    raise DataError(
                        f"{path} has no array {_listed(absent)}; it has {_listed(keys) or 'none at all'}. "
                        f"Write it with numpy.savez(path, {', '.join(f'{key}=…' for key in required)})."
                    )
                return {key: _member(found, key, path) for key in keys if key in KEYS}
    except DAMAGED_ARCHIVE as error:
        raise DataError(
            f"{path} is not a .npz file or is damaged ({error}). Write one with numpy.savez(path, x=…, y=…)."
        ) from error


def read_folder(folder: Path, image_size: tuple[int, int] | None = None, test_fraction: float = 0.2) -> Dataset:
    """Return the data set of a folder of images; the classes are its folders' names, sorted."""
    parts = {path.name: path for path in _folders(folder)}
    split = {"train", "test"} <= parts.keys()
    if split and len(parts) > 2:
        extra = _listed(sorted(parts.keys() - {"train", "test"}))
        raise DataError(f"{folder} has {extra} beside train and test. Expected: {LAYOUT}.")
    train = _classes(parts["train"] if split else folder)
    test = _classes(parts["test"]) if split else {}
    names = tuple(train)
    strange = [name for name in test if name not in train]
    if strange:
        raise DataError(
            f"{folder / 'test'} has the class {_listed(strange)}, which {folder / 'train'} doesn't have. "
            "Test images must be of classes that are trained on."
        )
    images = read_images([path for part in (train, test) for paths in part.values() for path in paths], image_size)
    labels = [names.index(name) for part in (train, test) for name, paths in part.items() for _ in paths]
    count = sum(len(paths) for paths in train.values())
    return Dataset.from_arrays(
        torch.from_numpy(images[:count]),
        labels[:count],
        x_test=torch.from_numpy(images[count:]) if split else None,
        y_test=labels[count:] if split else None,
        classes=names,
        test_fraction=test_fraction,
        name=folder.resolve().name,
    )


def _member(found: Any, key: str, path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        array: np.ndarray[Any, np.dtype[Any]] = found[key]
    except ValueError as error:
        if "pickle" not in str(error).lower() and "object" not in str(error).lower():
            raise
        raise DataError(
            f"The array '{key}' of {path} holds Python objects, which are not read because they can run "
            "code. Save it as plain numbers (or, for names, as numpy strings)."
        ) from error
    return array


def _classes(folder: Path) -> dict[str, list[Path]]:
    classes = {path.name: sorted(filter(is_image, path.iterdir())) for path in _folders(folder)}
    if not classes:
        raise DataError(f"{folder} has no folder for a class. Expected: {LAYOUT}.")
    for name, images in classes.items():
        if not images:
            raise DataError(f"The folder {folder / name} has no images. Add some, or remove the folder.")
    return classes


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _listed(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names)
