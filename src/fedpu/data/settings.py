"""The ``[data]`` table of the configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pooch
from pydantic import Field, NonNegativeInt, PositiveInt

from fedpu.errors import DataError
from fedpu.registry import Settings


class DataSettings(Settings):
    """Which data to train and test on."""

    name: str = Field(
        "mnist",
        description="A data set's name, a path to a CSV, Parquet or .npz file or to a folder of images, or your own "
        "function as module:function that returns a Dataset, (x, y) or (x, y, client).",
    )
    label: str = Field(
        "label", min_length=1, description="Of a table: the column of the classes; an empty cell is unlabelled."
    )
    client: str | None = Field(
        None,
        min_length=1,
        description='Of a table: the column that says whose each row is; by default "client", if there is one.',
    )
    ignore: list[str] = Field([], description="Of a table: columns to leave out, such as identifiers.")
    tokens: bool = Field(
        False, description="The inputs are token ids, 0 for padding: they stay whole numbers, for model.name = text."
    )
    test: str | None = Field(
        None, description="Of a CSV or Parquet file: another file of that form with test rows, which are all labelled."
    )
    directory: str | None = Field(
        None,
        description="Where full data sets are kept; else $FEDPU_DATA, else ./data if there, else a cache.",
    )
    image_size: tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="Height and width to which the images of a folder are resized."
    )
    test_fraction: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="Share of the labelled examples that is set aside for testing when your own data have no test set; "
        "0: none, and nothing is measured.",
    )
    pooled: tuple[NonNegativeInt, PositiveInt] | None = Field(
        None,
        description="Training and test data are pooled and cut anew: numbers of examples for validation and for "
        "testing, the rest for training, such as [3000, 3000] (FedMatch's).",
    )


def data_directory(directory: str | None = None) -> Path:
    """Return where full data sets are kept: as given, else $FEDPU_DATA, ./data if it exists, or a cache."""
    given = directory or os.environ.get("FEDPU_DATA")
    if given:
        return expand(given)
    here = Path("data")
    return here if here.is_dir() else Path(pooch.os_cache("fedpu"))


def expand(path: str) -> Path:
    """Return a path with ``~`` replaced by the home folder that it stands for."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise DataError(f"'{path}' can't be read as a path: {error}") from error
