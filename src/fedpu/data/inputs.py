"""Inputs without labels, to predict on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Num
from torch import Tensor

from fedpu.data.dataset import as_inputs, as_tokens
from fedpu.data.encoding import Encoding
from fedpu.data.images import SUFFIXES, is_image, read_images
from fedpu.data.raw import TOKENS, Raw, table_tokens
from fedpu.data.readers import need_reader, reader_for
from fedpu.data.settings import DataSettings
from fedpu.data.table import Table, is_lists, matrix
from fedpu.errors import DataError


class Inputs(NamedTuple):
    """Inputs as they are stored (``uint8``, ``float32`` or token ids, channels first), and what each row is called."""

    inputs: Num[Tensor, " n *shape"]
    names: tuple[str, ...]


def read_inputs(
    source: Any,
    image_size: tuple[int, int] | None = None,
    channels: int | None = None,
    *,
    encoding: Encoding | None = None,
    tokens: int | None = None,
) -> Inputs:
    """Return inputs of any form that a reader takes, an image, or a folder of images at any depth.

    Images are resized to ``image_size`` (height, width) and made grey (``channels=1``) or RGB (``channels=3``) when
    these are given. A table is read by ``encoding``; with ``tokens`` the inputs are that many token ids each. Rows are
    called by their number, and by their path in a folder.
    """
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        pictures = _pictures(path)
        if pictures is not None:
            images = read_images(list(pictures), image_size, channels)
            return Inputs(as_inputs(images, str(path)), tuple(pictures.values()))
        source = path
    raw = need_reader(source).inputs(source, DataSettings())
    if tokens is not None:
        inputs = _tokens(raw, tokens)
    elif encoding is not None:
        inputs = as_inputs(_encoded(raw, encoding), _what(raw))
    else:
        x = raw.x
        if isinstance(x, Table):
            x = _numbers(x, raw.name)
        inputs = as_inputs(x, _what(raw))
    return Inputs(inputs, tuple(str(row) for row in range(len(inputs))))


def _what(raw: Raw) -> str:
    return raw.name if not raw.name.endswith(".npz") else f"{raw.name}: x"


def _pictures(path: Path) -> dict[Path, str] | None:
    """Return the images that a path stands for, with what they are called; None where it stands for a file of data."""
    if path.is_dir():
        images = sorted(filter(is_image, path.rglob("*")))
        if not images:
            raise DataError(f"The folder {path} has no images ({', '.join(sorted(SUFFIXES))}).")
        return {image: image.relative_to(path).as_posix() for image in images}
    if not path.exists():
        raise DataError(
            f"There is no file or folder {path}. Give a CSV, Parquet, .npz or .npy file, an image or a folder of them."
        )
    if path.suffix.lower() in SUFFIXES:
        return {path: path.name}
    if reader_for(path) is None:
        raise DataError(
            f"{path} can't be read as inputs. Give a CSV, Parquet, .npz or .npy file, an image "
            f"({', '.join(sorted(SUFFIXES))}) or a folder of images."
        )
    return None


def _encoded(raw: Raw, encoding: Encoding) -> Any:
    if isinstance(raw.x, Table):
        return encoding.encode(raw.x, raw.name)
    array = np.asarray(raw.x)
    if not encoding.plain or array.ndim != 2 or array.shape[1] != encoding.width:
        raise DataError(
            f"{raw.name}: the model was trained on a table with the columns "
            f"{', '.join(map(repr, encoding.names))}. Give a CSV or Parquet file or a DataFrame that has them."
        )
    return array.astype(np.float32)


def _numbers(table: Table, what: str) -> Any:
    lists = [name for name, column in table.columns.items() if is_lists(column)]
    if lists:  # one vector per row
        return matrix(table.columns[lists[0]], lists[0], what)
    words = [name for name, column in table.columns.items() if column.dtype.kind == "O"]
    if words:
        raise DataError(
            f"{what}: the model was trained on arrays of numbers, and the column '{words[0]}' holds something else. "
            "Leave it out of the file."
        )
    return np.stack(list(table.columns.values()), axis=1)


def _tokens(raw: Raw, length: int) -> Tensor:
    """Return token ids, filled up or cut to the length that the model was trained with."""
    x = raw.x
    if isinstance(x, Table):
        lists = [name for name, column in x.columns.items() if is_lists(column)]
        name = TOKENS if TOKENS in lists else next(iter(lists), None)
        others = [other for other in ("label", "client") if other in x.columns and len(x.columns) > 1]
        x = matrix(x.columns[name], name, raw.name) if name else table_tokens(x.without(others), raw.name)
    ids = as_tokens(x, _what(raw)).numpy()[:, :length]
    return as_tokens(np.pad(ids, ((0, 0), (0, length - ids.shape[1]))), _what(raw))
