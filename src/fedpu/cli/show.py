"""``fedpu show`` and ``fedpu config``: look before you train."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import typer

from fedpu.cli import known
from fedpu.cli.console import ConfigFile, Json, Overrides, Preset, load_config, output, print_json


def show(
    config: ConfigFile = None,
    preset: Preset = None,
    overrides: Overrides = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also draw the picture to this PNG, SVG or PDF file.")
    ] = None,
    json: Json = False,
) -> None:
    """Draw who has labelled what: clients × classes, each labelled, unlabelled or absent."""
    from fedpu.applications.prepared import prepare
    from fedpu.labelling import holdings
    from fedpu.report import check_picture, save_picture, terminal_picture

    if save is not None:
        check_picture(save)
    prepared = prepare(load_config(config, preset, overrides))
    held = holdings(prepared.federation, prepared.hidden)
    if save is not None:
        save_picture(held, save)
    if json:
        positive = [[int(c) for c in row.nonzero()[:, 0]] for row in prepared.federation.positive]
        counts = {name: getattr(held, name).tolist() for name in ("labelled", "unlabelled", "unknown")}
        print_json(counts | {"positive": positive})
        return
    output.print(terminal_picture(held, output.width))
    output.print("█ labelled, of a positive class   ░ unlabelled, of a negative class   · none", style="dim")
    if save is not None:
        output.print(f"Picture: {save}", highlight=False, soft_wrap=True)


def config(
    presets: Annotated[
        bool, typer.Option("--presets", help="List the presets instead, those of the paper's tables among them.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the default configuration file, every key with its meaning. Example: 'fedpu config > my.toml'."""
    if presets:
        found = known.preset_listing()
        if json:
            print_json(found)
            return
        width = max(len(preset["name"]) for preset in found)
        print("\n".join(f"{preset['name']:<{width}}  {preset['what']}".rstrip() for preset in found))
        return
    text = known.default_configuration()
    if json:
        print_json(tomllib.loads(text))
    else:
        print(text, end="")
