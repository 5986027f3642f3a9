"""``fedpu data``: what there is to train on."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedpu.cli import known
from fedpu.cli.console import Json, Overrides, errors, load_config, output, print_json

app = typer.Typer(help="List, fetch and look at data sets.", no_args_is_help=True, rich_markup_mode=None)

Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory", help="Where full data sets are kept; by default $FEDPU_DATA, ./data or a cache folder."
    ),
]


@app.command("list")
def list_(directory: Directory = None, json: Json = False) -> None:
    """List the data sets that are known by name, and whether they are here."""
    where = known.data_directory(directory)
    readers = known.plugins().get("fedpu.data", [])
    if json:
        rows = [one._asdict() | {"missing": one.missing(where)} for one in known.data_sets()]
        print_json({"directory": str(where), "data_sets": rows, "readers": readers})
        return
    table = Table(header_style="bold")
    for heading in ("name", "what it is", "size", "here?"):
        table.add_column(heading)
    for source in known.data_sets():
        here = "yes" if not source.missing(where) else f"no: fedpu data fetch {source.name}"
        table.add_row(source.name, source.description, source.size, here)
    for name in readers:
        table.add_row(name, "from an installed package", "", "")
    output.print(table)
    output.print(
        f"Data directory: {where}. Your own data: a path to a CSV, Parquet or .npz file or a folder of images, or a "
        "function as module:function.",
        highlight=False,
        soft_wrap=True,
    )


@app.command("fetch")
def fetch_(
    name: Annotated[str, typer.Argument(help="The data set's name.")], directory: Directory = None, json: Json = False
) -> None:
    """Fetch a data set into the data directory, and check it."""
    from fedpu.data import fetch

    folder = fetch(name, directory)
    if json:
        print_json({"name": name, "folder": str(folder)})
        return
    errors.print(f"{name} is complete and checked: {folder}", highlight=False, soft_wrap=True)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A data set's name, a .npz file or a folder of images.")],
    overrides: Overrides = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Show a data set's shape, types and class counts."""
    import numpy as np

    from fedpu.data import load

    config = load_config(None, None, [*(overrides or []), f"data.name={json_format.dumps(name)}"])
    data = load(config.data if directory is None else config.data.model_copy(update={"directory": str(directory)}))
    train = np.bincount(data.labels[data.labels >= 0].numpy(), minlength=len(data.classes))
    test = np.bincount(data.test_labels.numpy(), minlength=len(data.classes))
    unlabelled = int((data.labels < 0).sum())
    if json:
        told = {
            "name": data.name,
            "shape": list(data.shape),
            "type": str(data.inputs.dtype).removeprefix("torch."),
            "classes": list(data.classes),
            "training": train.tolist(),
            "test": test.tolist(),
            "unlabelled": unlabelled,
            "clients": None if data.client is None else int(data.client.max()) + 1,
        }
        print_json(told)
        return
    shape = " × ".join(map(str, data.shape))
    output.print(
        f"{data.name}: {len(data.labels):,} training and {len(data.test_labels):,} test examples of {shape} "
        f"({str(data.inputs.dtype).removeprefix('torch.')}), {len(data.classes)} classes"
        + ("" if data.client is None else f", {int(data.client.max()) + 1} clients in its column"),
        highlight=False,
    )
    table = Table(header_style="bold")
    for heading in ("class", "name", "training", "test"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    for cls, label in enumerate(data.classes):
        table.add_row(str(cls), Text(label), f"{train[cls]:,}", f"{test[cls]:,}")
    if unlabelled:
        table.add_row("−1", "unlabelled", f"{unlabelled:,}", "0")
    output.print(table)
