"""``fedpu data``: what there is to train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from fedpu.cli.console import Overrides, errors, load_config, output
from fedpu.data import FUNCTIONS, SOURCES, data_directory, fetch, load

app = typer.Typer(help="List, fetch and look at data sets.", no_args_is_help=True, rich_markup_mode=None)

Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory", help="Where full data sets are kept; by default $FEDPU_DATA, ./data or a cache folder."
    ),
]


@app.command("list")
def list_(directory: Directory = None) -> None:
    """List the data sets that are known by name, and whether they are here."""
    where = data_directory(None if directory is None else str(directory))
    table = Table(header_style="bold")
    for heading in ("name", "what it is", "size", "here?"):
        table.add_column(heading)
    for name, source in SOURCES.items():
        here = "yes" if not source.missing(where) else f"no: fedpu data fetch {name}"
        table.add_row(name, source.description, source.size, here)
    for name in FUNCTIONS:
        table.add_row(name, "from an installed package", "", "")
    output.print(table)
    output.print(
        f"Data directory: {where}. Your own data: a path to a CSV, Parquet or .npz file or a folder of images, or a "
        f"function as {FUNCTIONS.own}.",
        highlight=False,
        soft_wrap=True,
    )


@app.command("fetch")
def fetch_(name: Annotated[str, typer.Argument(help="The data set's name.")], directory: Directory = None) -> None:
    """Fetch a data set into the data directory, and check it."""
    folder = fetch(name, directory)
    errors.print(f"{name} is complete and checked: {folder}", highlight=False, soft_wrap=True)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A data set's name, a .npz file or a folder of images.")],
    overrides: Overrides = None,
    directory: Directory = None,
) -> None:
    """Show a data set's shape, types and class counts."""
    config = load_config(None, None, [*(overrides or []), f"data.name={json.dumps(name)}"])
    data = load(config.data if directory is None else config.data.model_copy(update={"directory": str(directory)}))
    shape = " × ".join(map(str, data.shape))
    output.print(
        f"{data.name}: {len(data.labels):,} training and {len(data.test_labels):,} test examples of {shape} "
        f"({str(data.inputs.dtype).removeprefix('torch.')}), {len(data.classes)} classes"
        + ("" if data.client is None else f", {int(data.client.max()) + 1} clients in its column"),
        highlight=False,
    )
    train = np.bincount(data.labels[data.labels >= 0].numpy(), minlength=len(data.classes))
    test = np.bincount(data.test_labels.numpy(), minlength=len(data.classes))
    table = Table(header_style="bold")
    for heading in ("class", "name", "training", "test"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    for cls, label in enumerate(data.classes):
        table.add_row(str(cls), Text(label), f"{train[cls]:,}", f"{test[cls]:,}")
    unlabelled = int((data.labels < 0).sum())
    if unlabelled:
        table.add_row("−1", "unlabelled", f"{unlabelled:,}", "0")
    output.print(table)
