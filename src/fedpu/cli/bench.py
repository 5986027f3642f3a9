"""``fedpu bench``: how fast the engine is here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpu.cli.console import ConfigFile, Json, Overrides, Preset, errors, load_config, output, print_json
from fedpu.errors import ConfigError


def bench(
    config: ConfigFile = None,
    preset: Preset = None,
    overrides: Overrides = None,
    clients: Annotated[
        str, typer.Option("--clients", help="Numbers of clients, comma-separated.")
    ] = "10,100,1000,10000",
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Rounds measured for each, after one to warm up.")
    ] = 3,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write it to this Markdown file, or draw it (PNG, SVG, PDF).")
    ] = None,
    json: Json = False,
) -> None:
    """Measure seconds per round, fixed costs and memory over 60,000 images, for few clients and for many.

    Example: 'fedpu bench --set engine.workers=1 --set aggregation.batch_size=20'.
    """
    from fedpu.applications import bench as measuring
    from fedpu.report.bench import bench_table, save_bench

    try:
        counts = [int(text) for text in clients.split(",")]
    except ValueError as error:
        raise ConfigError(f"--clients = '{clients}' can't be used: give whole numbers such as 10,100,1000.") from error
    if min(counts) < 10 or max(counts) > 10**6:
        raise ConfigError("--clients takes numbers from 10 to 1,000,000.")
    chosen = load_config(config, preset, overrides)
    result = measuring.bench(
        chosen, counts, repeats, lambda what: None if json else errors.print(f"measuring {what} …")
    )
    if save is not None:
        save_bench(result, save)
    if json:
        print_json(result.to_dict() | {"machine": measuring.machine()})
    else:
        output.print(bench_table(result))
