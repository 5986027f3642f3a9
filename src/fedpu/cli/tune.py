"""``fedpu tune``: choose settings without a hidden label."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fedpu.cli import known
from fedpu.cli.console import (
    ConfigFile,
    Json,
    Overrides,
    OwnData,
    Preset,
    Quiet,
    configured,
    errors,
    going_on_in,
    output,
    print_json,
    print_notes,
    round_progress,
)
from fedpu.valid_json import json_text


def tune(
    config: ConfigFile = None,
    preset: Preset = None,
    overrides: Overrides = None,
    data: OwnData = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="KEY=VALUE,VALUE,…",
            help="Values to choose from, such as aggregation.lr=.03,.1; given again, all combinations are tried.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", "-n", min=1, help="Number of seeds, counted up from the configured one.")
    ] = 2,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Try this many of the combinations, drawn at random.")
    ] = None,
    halve: Annotated[
        bool, typer.Option("--halve", help="Drop the worse half after a quarter of the rounds, and again after half.")
    ] = False,
    validation: Annotated[
        float | None,
        typer.Option(
            "--validation",
            min=0,
            max=0.5,
            help=f"Share of its data that a client holds out; default: as configured, or {known.number('held_out')}.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the runs and the choice; started again, it goes on where it was."),
    ] = None,
    show_test: Annotated[
        bool, typer.Option("--show-test", help="Show test accuracy, too. It plays no part in the choice.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose settings by the validation score, and by nothing else.

    Every client holds out a share of its own data as it has them, labelled and unlabelled, and the model is scored by
    how well it foretells which label, if any, the client gave. No hidden label and no test set is needed. Writes
    tune.json and best.toml. Example: 'fedpu tune --preset quickstart --over aggregation.lr=.01,.03,.1'.
    """
    from fedpu.applications import tuning
    from fedpu.record import write_atomically
    from fedpu.report import tuning_table

    chosen, _ = configured(config, preset, overrides or [], data)
    folder = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-tune"
    with going_on_in(folder), round_progress(quiet) as progress:
        result = tuning.tune(
            chosen,
            over or [],
            range(chosen.seed, chosen.seed + seeds),
            validation=validation,
            most=trials,
            halve=halve,
            out=folder,
            on_run=lambda name, seed: progress.start(
                f"{name} (seed {seed})" if seeds > 1 else name, chosen.aggregation.rounds
            ),
            on_note=print_notes(quiet),
        )
    told = result.to_dict(show_test)
    write_atomically(folder / "tune.json", json_text(told, indent=2).encode())
    write_atomically(folder / "best.toml", result.best_config.to_toml().encode())
    if json:
        print_json(told | {"folder": str(folder)})
    else:
        output.print(tuning_table(result, show_test))
        for trial in result.trials:
            if trial.error is not None:
                errors.print(f"{trial.name} failed: {trial.error}", highlight=False, soft_wrap=True)
        output.print(
            f"Chosen: {result.best.name}. Train on all data with 'fedpu run {folder / 'best.toml'}'.",
            highlight=False,
            soft_wrap=True,
        )
