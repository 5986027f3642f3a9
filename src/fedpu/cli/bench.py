"""``fedpu bench``: how fast the engine is here, and what a run of a configuration will cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpu.cli.console import (
    ConfigFile,
    Json,
    Overrides,
    OwnData,
    Preset,
    configured,
    errors,
    load_config,
    output,
    print_json,
)
from fedpu.errors import ConfigError

if TYPE_CHECKING:
    from fedpu.applications.cost import Cost
    from fedpu.applications.made_up import MadeUp
    from fedpu.config import Config

CLIENTS = "10,100,1000,10000"


def bench(
    config: ConfigFile = None,
    preset: Preset = None,
    overrides: Overrides = None,
    data: OwnData = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="The network to measure: a name, or your own as module:Class."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option("--shape", help="Made-up images of this shape: mnist, cifar10, or such as 3x64x64."),
    ] = None,
    examples: Annotated[
        int | None, typer.Option("--examples", min=10, help="How many made-up images all clients have together.")
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option("--clients", help=f"Numbers of clients, comma-separated; {CLIENTS}, or the configuration's."),
    ] = None,
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, help="Rounds measured for each, after one to warm up.")
    ] = 3,
    plain: Annotated[
        bool, typer.Option("--plain/--no-plain", help="Measure plain PyTorch beside a configuration as a yardstick.")
    ] = True,
    save: Annotated[
        Path | None, typer.Option("--save", help="Also write it to this Markdown file, or draw it (PNG, SVG, PDF).")
    ] = None,
    json: Json = False,
) -> None:
    """Measure seconds per round and memory on this machine.

    With a configuration, --preset, --data, --model or --shape: a round of that run, the time of the whole run, and
    plain PyTorch beside it. Without: rounds over 60,000 images for few clients and for many, and fixed costs.

    Examples: 'fedpu bench my.toml', 'fedpu bench --model my_nets:Net --shape cifar10 --clients 5,1000', 'fedpu bench
    --set engine.workers=1'.
    """
    counts = None if clients is None else _counts(clients)
    if any(one is not None for one in (config, preset, data, model, shape, examples)):
        given = [*(overrides or []), *([f"model.name={model}"] if model is not None else [])]
        chosen, own = configured(config, preset, given, data)
        made_up = None if own is not None else _made_up(chosen, shape, examples)
        _measure_cost(chosen, made_up, counts, repeats, plain, save, json)
        return
    _measure_sizes(load_config(None, None, overrides), counts or _counts(CLIENTS), repeats, save, json)


def _measure_sizes(config: Config, counts: list[int], repeats: int, save: Path | None, json: bool) -> None:
    from fedpu.applications import bench as measuring
    from fedpu.report import check_picture
    from fedpu.report.bench import bench_table, save_bench

    if min(counts) < 10:
        raise ConfigError("--clients takes numbers from 10 on.")
    if save is not None and save.suffix.lower() != ".md":
        check_picture(save)
    result = measuring.bench(
        config, counts, repeats, lambda what: None if json else errors.print(f"measuring {what} …")
    )
    if save is not None:
        save_bench(result, save)
    if json:
        print_json(result.to_dict() | {"machine": measuring.machine()})
    else:
        output.print(bench_table(result))


def _measure_cost(
    config: Config,
    made_up: MadeUp | None,
    counts: list[int] | None,
    repeats: int,
    plain: bool,
    save: Path | None,
    json: bool,
) -> None:
    from fedpu.applications.bench import alike, machine
    from fedpu.applications.cost import cost
    from fedpu.record import write_atomically
    from fedpu.report.bench import cost_markdown, cost_notes, cost_table

    if save is not None and save.suffix.lower() != ".md":
        raise ConfigError(f"--save = '{save}' can't be used: the cost of a run is written as Markdown, to a .md file.")
    costs: list[Cost] = []
    for chosen in [config] if counts is None else [alike(config, count) for count in counts]:
        costs.append(cost(chosen, made_up, repeats, plain, lambda what: None if json else errors.print(f"{what} …")))
    if save is not None:
        write_atomically(save, cost_markdown(costs).encode())
    if json:
        print_json({"costs": [one.to_dict() for one in costs], "machine": machine()})
    else:
        for one in costs:
            output.print(cost_table(one))
            for note in cost_notes(one):
                output.print(note, highlight=False, soft_wrap=True)


def _made_up(config: Config, shape: str | None, examples: int | None) -> MadeUp | None:
    """Return what stands for data that would have to be fetched; None, where the configuration's own are at hand."""
    from dataclasses import replace

    from fedpu.applications.made_up import IN_THE_PLACE_OF, MadeUp, read_shape

    stand_in = IN_THE_PLACE_OF.get(config.data.name)
    if shape is not None:
        known = IN_THE_PLACE_OF.get(shape)
        stand_in = known if known is not None else MadeUp(read_shape(shape), 50_000, 10_000)
    if examples is not None and stand_in is None:
        raise ConfigError("--examples is about made-up images: give --shape with it.")
    return replace(stand_in, examples=examples) if stand_in is not None and examples is not None else stand_in


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--clients = '{text}' can't be used: give whole numbers such as 10,100,1000.") from error
    if min(counts) < 1 or max(counts) > 10**6:
        raise ConfigError("--clients takes numbers from 1 to 1,000,000.")
    return counts
