"""Folders of images: one per class, ``unlabelled`` among them, and maybe one per client around them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedpu.data.images import SUFFIXES, is_image, read_images
from fedpu.data.problems import Problems
from fedpu.data.raw import Raw
from fedpu.data.readers.base import Reader
from fedpu.data.settings import DataSettings
from fedpu.errors import DataError

UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")
"""names of the folder whose images have no label"""
LAYOUT = "<folder>/<class>/<image>, or <folder>/train/<class>/<image> and <folder>/test/<class>/<image>"
CLIENTS_LAYOUT = "<folder>/<client>/<class>/<image>"


class Picture(NamedTuple):
    """An image file, and what the folders around it say."""

    path: Path
    label: str | None
    client: str | None


class FolderReader(Reader):
    """A folder of images."""

    what: ClassVar[str] = "a folder of images, one folder per class, maybe in one folder per client"

    def takes(self, given: Any) -> bool:
        """Is it a folder?"""
        return isinstance(given, Path) and given.is_dir()

    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Return its images; the classes are the folders' names, sorted."""
        parts = {path.name: path for path in folders(given)}
        split = {"train", "test"} <= parts.keys()
        if split and len(parts) > 2:
            extra = ", ".join(f"'{name}'" for name in sorted(parts.keys() - {"train", "test"}))
            raise DataError(f"{given} has {extra} beside train and test. Expected: {LAYOUT}.")
        train = list(pictures(parts["train"] if split else given))
        test = list(_of_classes(parts["test"], None)) if split else []
        names = tuple(sorted({picture.label for picture in train if picture.label is not None}))
        problems = Problems()
        strange = sorted({str(picture.label) for picture in test if picture.label not in names})
        if strange and strange[0] == "None":
            problems.add(f"{given / 'test'} has a folder of unlabelled images. Test images must all be labelled.")
        elif strange:
            problems.add(
                f"{given / 'test'} has the class '{strange[0]}', which {given / 'train'} doesn't have. "
                "Test images must be of classes that are trained on."
            )
        if not names:
            problems.add(f"{given} has no folder for a class besides '{UNLABELLED_FOLDERS[0]}'. Expected: {LAYOUT}.")
        problems.tell()
        images = read_images([picture.path for picture in [*train, *test]], settings.image_size)
        name = given.resolve().name
        clients = [picture.client for picture in train]
        return Raw(
            name,
            images[: len(train)],
            _labels(train),
            None if clients[0] is None else clients,
            names,
            Raw(name, images[len(train) :], _labels(test)) if split else None,
        )


def pictures(folder: Path) -> Iterator[Picture]:
    """Return the images of a folder of classes, or of a folder of clients with classes of their own."""
    parts = folders(folder)
    deep = [part for part in parts if folders(part)]
    if not deep:
        yield from _of_classes(folder, None)
        return
    flat = [part.name for part in parts if part not in deep or any(map(is_image, part.iterdir()))]
    if flat:
        raise DataError(
            f"{folder} mixes classes and clients: '{flat[0]}' holds images, and '{deep[0].name}' holds folders. "
            f"Expected: {LAYOUT}, or {CLIENTS_LAYOUT}."
        )
    for part in deep:
        yield from _of_classes(part, part.name)


def folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted; hidden ones are left out."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _of_classes(folder: Path, client: str | None) -> Iterator[Picture]:
    parts = folders(folder)
    if not parts:
        raise DataError(f"{folder} has no folder for a class. Expected: {LAYOUT}.")
    problems, found = Problems(), []
    for part in parts:
        images = sorted(filter(is_image, part.iterdir()))
        if not images:
            others = "" if folders(part) else f" ({', '.join(sorted(SUFFIXES))})"
            problems.add(f"The folder {part} has no images{others}. Add some, or remove the folder.")
        label = None if part.name.lower() in UNLABELLED_FOLDERS else part.name
        found += [Picture(image, label, client) for image in images]
    problems.tell()
    yield from found


def _labels(found: list[Picture]) -> Any:
    """Return names, as a table would have them."""
    return np.array([picture.label for picture in found], dtype=object)
