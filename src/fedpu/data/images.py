"""Image files as arrays: all grey or all RGB, all of one size."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from fedpu.errors import DataError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"})
_GREY_MODES = frozenset({"1", "L", "LA", "I;16", "I;16B", "I;16L"})
_UNREADABLE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


def is_image(path: Path) -> bool:
    """Say whether ``path`` is a file with the name of an image; hidden files are not."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def read_images(
    paths: Sequence[Path], size: tuple[int, int] | None = None, channels: int | None = None
) -> UInt8[np.ndarray, "n channels height width"]:
    """Return the images, resized to ``size`` (height, width) when it is given.

    They are grey when all of them are, else RGB, unless ``channels`` says which (1 or 3).
    """
    images = [_read(path, size) for path in paths]
    for path, image in zip(paths, images, strict=True):
        if image.size != images[0].size:
            raise DataError(
                f"Images must have one size: {paths[0]} is {_told(images[0])} and {path} is {_told(image)}. "
                "Set data.image_size = [height, width] to resize them."
            )
    if channels is None:
        channels = 1 if all(image.mode == "L" for image in images) else 3
    mode = "L" if channels == 1 else "RGB"
    stacked = np.stack([np.asarray(image.convert(mode)) for image in images])
    return stacked[:, None] if channels == 1 else np.ascontiguousarray(stacked.transpose(0, 3, 1, 2))


def _read(path: Path, size: tuple[int, int] | None) -> Image.Image:
    try:
        with Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened)
            grey = upright.mode in _GREY_MODES
            if upright.mode.startswith("I;16"):
                # Pillow's own conversion of 16 bits to 8 cuts off instead of scaling.
                image = Image.fromarray((np.asarray(upright) // 257).astype(np.uint8))
            else:
                image = upright.convert("L" if grey else "RGB")
    except _UNREADABLE as error:
        raise DataError(
            f"The image {path} can't be read ({error}). Replace it or remove it from the folder."
        ) from error
    if size is None:
        return image
    height, width = size
    return image.resize((width, height), Image.Resampling.BILINEAR)


def _told(image: Image.Image) -> str:
    return f"{image.height}×{image.width}"
