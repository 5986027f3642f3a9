"""Where output goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.text import Text

from fedpu.cli import known
from fedpu.errors import ConfigError, FedpuWarning
from fedpu.valid_json import json_text

if TYPE_CHECKING:
    from rich.progress import Progress

    from fedpu.applications.experiment import OnNote
    from fedpu.applications.recording import RoundLine
    from fedpu.applications.training import OnRound
    from fedpu.config import Config
    from fedpu.data import Dataset

output = Console(markup=False)
errors = Console(stderr=True, markup=False)


def _presets(incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of a preset."""
    found = ((preset["name"], preset["what"]) for preset in known.preset_listing())
    return [pair for pair in found if pair[0].startswith(incomplete)]


def _keys(incomplete: str) -> list[str]:
    """Complete a setting, up to its equals sign."""
    values = tomllib.loads(known.default_configuration())
    keys = [f"{table}.{key}=" for table, own in values.items() if isinstance(own, dict) for key in own]
    return [key for key in ["seed=", *keys] if key.startswith(incomplete)]


ConfigFile = Annotated[
    str | None,
    typer.Argument(
        metavar="[CONFIG]", help="A TOML file ('fedpu config' prints one); without it, the paper's defaults."
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        "-p",
        help="Start from a preset by name, such as quickstart or paper-iid-10x1 ('fedpu config --presets' lists all).",
        autocompletion=_presets,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Set a key, such as method.name=fedpu; may be given again.",
        autocompletion=_keys,
    ),
]
OwnData = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        metavar="DATA",
        help="Your own data: a CSV, Parquet or .npz file or a folder of images, with settings that suit them.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def load_config(source: str | None, preset: str | None, overrides: list[str] | None) -> Config:
    """Return the configuration that the command line asks for."""
    from fedpu.config import Config
    from fedpu.data import SOURCES

    config = Config.load(source, preset=preset, overrides=overrides or [])
    if config.data.name not in SOURCES and Path(config.data.name).exists():
        # The recorded run must find its data from any folder.
        where = config.data.model_copy(update={"name": str(Path(config.data.name).resolve())})
        config = config.model_copy(update={"data": where})
    return config


def configured(
    source: str | None, preset: str | None, overrides: list[str], data: str | None
) -> tuple[Config, Dataset | None]:
    """Return the configuration that is asked for; with ``data``, one that suits them, and the data themselves."""
    if data is None:
        return load_config(source, preset, overrides), None
    if source or preset:
        raise ConfigError(
            "--data chooses settings to suit your data. With a configuration, use --set data.name=… instead."
        )
    from fedpu.applications.suggestion import suggested
    from fedpu.config.config import toml_string
    from fedpu.data import load

    named = [f"data.name={toml_string(data)}", *(one for one in overrides if one.startswith("data."))]
    dataset = load(load_config(None, None, named).data)
    return load_config(None, None, [*named, *suggested(dataset), *overrides]), dataset


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each warning of fedpu's once, as a sentence."""
    printed: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, FedpuWarning):
            others(message, category, filename, lineno, file, line)
        elif str(message) not in printed:
            printed.add(str(message))
            errors.print(Text.assemble(("warning:", "bold yellow"), " ", str(message)), highlight=False, soft_wrap=True)

    with warnings.catch_warnings():
        others = warnings.showwarning
        warnings.simplefilter("always", FedpuWarning)
        warnings.showwarning = show
        yield


def print_json(value: Any) -> None:
    """Print JSON to standard output, untouched by the terminal's width; what is no number is null."""
    print(json_text(value, indent=2), end="")


def print_notes(quiet: bool) -> OnNote:
    """Return what prints each sentence once, on standard error; nothing when quiet."""
    printed: set[str] = set()

    def on_note(sentence: str) -> None:
        if not quiet and sentence not in printed:
            printed.add(sentence)
            errors.print(sentence, highlight=False, soft_wrap=True)

    return on_note


def measured(line: RoundLine) -> str:
    """Return what was measured in a round, in words; nothing where nothing was."""
    word = "right of labelled" if "measured_on" in line else "accuracy"
    told = [f"{word} {line['accuracy']:.2%}"] if "accuracy" in line else []
    told += [f"validation {line['validation']:.4f}"] if line.get("validation") is not None else []
    return ", ".join(told)


@contextmanager
def going_on_in(folder: Path) -> Iterator[None]:
    """End with a sentence on Ctrl-C: how to go on with the runs in a folder."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(
            f"Stopped. Finished rounds are kept: give --out {folder} again to go on.", highlight=False, soft_wrap=True
        )
        raise typer.Exit(130) from None


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
            if measured(line):
                progress.update(bar, accuracy=measured(line))
            progress.update(bar, completed=line["round"])

        return on_round

    def _lines(self, name: str, rounds: int) -> OnRound:
        step = max(1, rounds // 5)

        def on_round(line: RoundLine) -> None:
            if not self._quiet and (line["round"] % step == 0 or line["round"] == rounds):
                told = f", {measured(line)}" if measured(line) else ""
                errors.print(f"{name}: round {line['round']} of {rounds}{told}", highlight=False)

        return on_round


@contextmanager
def round_progress(quiet: bool) -> Iterator[RoundProgress]:
    """Show the progress of the runs that are started inside."""
    if quiet or not errors.is_terminal:
        yield RoundProgress(None, quiet)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

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
