"""Inputs without labels, to predict on."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Num
from torch import Tensor

from fedpu.data.dataset import as_inputs
from fedpu.data.images import SUFFIXES, is_image, read_images
from fedpu.data.own import load_npz
from fedpu.errors import DAMAGED_ARCHIVE, DataError


class Inputs(NamedTuple):
    """Inputs as they are stored (``uint8`` or ``float32``, channels first), and what each row is called."""

    inputs: Num[Tensor, " n *shape"]
    names: tuple[str, ...]


def read_inputs(path: str | Path, image_size: tuple[int, int] | None = None, channels: int | None = None) -> Inputs:
    """Return the inputs of a ``.npz`` (its ``x``), a ``.npy``, an image, or a folder of images at any depth.

    Images are resized to ``image_size`` (height, width) and made grey (``channels=1``) or RGB
    (``channels=3``) when these are given. Rows are called by their number in an array and by their path in a
    folder.
    """
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if path.is_dir():
        images = sorted(filter(is_image, path.rglob("*")))
        if not images:
            raise DataError(f"The folder {path} has no images ({', '.join(sorted(SUFFIXES))}).")
        names = tuple(image.relative_to(path).as_posix() for image in images)
        return Inputs(as_inputs(read_images(images, image_size, channels), str(path)), names)
    if not path.exists():
        raise DataError(f"There is no file or folder {path}. Give a .npz, a .npy, an image or a folder of images.")
    if suffix in SUFFIXES:
        return Inputs(as_inputs(read_images([path], image_size, channels), str(path)), (path.name,))
    if suffix == ".npz":
        inputs = as_inputs(load_npz(path, required=("x",))["x"], f"{path}: x")
    elif suffix == ".npy":
        inputs = as_inputs(_load_npy(path), str(path))
    else:
        raise DataError(
            f"{path} can't be read as inputs. Give a .npz, a .npy, an image ({', '.join(sorted(SUFFIXES))}) "
            "or a folder of images."
        )
    return Inputs(inputs, tuple(str(row) for row in range(len(inputs))))


def _load_npy(path: Path) -> Num[np.ndarray, " ..."]:
    try:
        with open(path, "rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except DAMAGED_ARCHIVE as error:
        raise DataError(
            f"{path} is not a .npy file of numbers ({error}). Write one with numpy.save(path, x)."
        ) from error
    return array
