"""``fedpu check``: look at your data before you train on them."""

from __future__ import annotations

from typing import Annotated

import typer

from fedpu.cli.console import Json, Overrides, load_config, output, print_json


def check(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A CSV, Parquet or .npz file, a folder of images, or a data set's name."),
    ],
    overrides: Overrides = None,
    json: Json = False,
) -> None:
    """Say what is in your data, what will work and what will not, and the command to run next.

    Everything that is wrong is said at once. Example: 'fedpu check patients.csv --set data.label=diagnosis'.
    """
    from fedpu.applications import check as checking
    from fedpu.config.config import toml_string

    config = load_config(None, None, [*(overrides or []), f"data.name={toml_string(data)}"])
    found = checking.check(config.data)
    if json:
        print_json(found.to_dict())
    else:
        for sentence in found.there:
            output.print(sentence, highlight=False, soft_wrap=True)
        for mark, sentences in (("works", found.works), ("doubtful", found.doubtful), ("wrong", found.wrong)):
            for sentence in sentences:
                output.print(f"{mark}: {sentence}", highlight=False, soft_wrap=True)
        if found.command:
            output.print(f"Next:\n  {found.command}", highlight=False, soft_wrap=True)
    if found.wrong:
        raise typer.Exit(1)
