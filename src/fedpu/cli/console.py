"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedpu.config import Config
from fedpu.data import SOURCES
from fedpu.experiment import OnRound, RoundLine

output = Console(markup=False)
errors = Console(stderr=True, markup=False)

ConfigFile = Annotated[
    str | None,
    typer.Argument(
        metavar="[CONFIG]", help="A TOML file ('fedpu config' prints one); without it, the paper's defaults."
    ),
]
Preset = Annotated[
    str | None,
    typer.Option("--preset", "-p", help="Start from a preset by name, such as quickstart or paper-iid-10x1."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Set a key, such as method.name=fedpu; may be given again."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def load_config(source: str | None, preset: str | None, overrides: list[str] | None) -> Config:
    """Return the configuration that the command line asks for."""
    config = Config.load(source, preset=preset, overrides=overrides or [])
    if config.data.name not in SOURCES and Path(config.data.name).exists():
        # The recorded run must find its data from any folder.
        where = config.data.model_copy(update={"name": str(Path(config.data.name).resolve())})
        config = config.model_copy(update={"data": where})
    return config


def print_json(value: Any) -> None:
    """Print JSON to standard output, untouched by the terminal's width."""
    print(json.dumps(value, indent=2))


class RoundProgress:
    """Shows rounds going by: a live bar on a terminal, a line now and then elsewhere, nothing when quiet."""

    def __init__(self, progress: Progress | None, quiet: bool) -> None:
        self._progress = progress
        self._quiet = quiet

    def start(self, name: str, rounds: int) -> OnRound:
        """Begin a run of that many rounds; call the result after each."""
        if self._progress is not None:
            return self._bar(self._progress, name, rounds)
        return self._lines(name, rounds)

    def _bar(self, progress: Progress, name: str, rounds: int) -> OnRound:
        bar = progress.add_task(name, total=rounds, accuracy="")

        def on_round(line: RoundLine) -> None:
            if "accuracy" in line:
                progress.update(bar, accuracy=f"accuracy {line['accuracy']:.2%}")
            progress.update(bar, completed=line["round"])

        return on_round

    def _lines(self, name: str, rounds: int) -> OnRound:
        step = max(1, rounds // 5)

        def on_round(line: RoundLine) -> None:
            if not self._quiet and (line["round"] % step == 0 or line["round"] == rounds):
                accuracy = f", accuracy {line['accuracy']:.2%}" if "accuracy" in line else ""
                errors.print(f"{name}: round {line['round']} of {rounds}{accuracy}", highlight=False)

        return on_round


@contextmanager
def round_progress(quiet: bool) -> Iterator[RoundProgress]:
    """Show the progress of the runs that are started inside."""
    if quiet or not errors.is_terminal:
        yield RoundProgress(None, quiet)
        return
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=28),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors) as progress:
        yield RoundProgress(progress, quiet)
