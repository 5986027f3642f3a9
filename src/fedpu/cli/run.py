"""``fedpu run``: train once, and record it."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    output,
    print_json,
    print_notes,
    round_progress,
)
from fedpu.errors import ConfigError

if TYPE_CHECKING:
    from fedpu.config import Config


def run(
    config: ConfigFile = None,
    preset: Preset = None,
    overrides: Overrides = None,
    data: OwnData = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help=f"Short for --set engine.name=…: {', '.join(known.names('engines'))}."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run directory; by default a new one under runs/.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped; takes no other settings."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a federated classifier as configured, and record the run in a directory.

    Examples: 'fedpu run --preset quickstart', 'fedpu run --data patients.csv', 'fedpu run my.toml --set seed=1'.
    """
    from fedpu.applications.experiment import resume as go_on
    from fedpu.applications.experiment import run_prepared
    from fedpu.applications.prepared import prepare
    from fedpu.record import RunDirectory
    from fedpu.report import read_groups, save_report

    if resume is not None:
        if config or preset or overrides or data or engine or out:
            raise ConfigError("--resume takes everything from the run directory; give no other settings with it.")
        chosen, folder = RunDirectory.open(resume).config(), resume
    else:
        given = [*(overrides or []), *([f"engine.name={engine}"] if engine is not None else [])]
        chosen, dataset = configured(config, preset, given, data)
        folder = out or default_folder(chosen)
    name = chosen.method.model_dump()["name"]
    try:
        with round_progress(quiet) as progress:
            on_round = progress.start(name, chosen.aggregation.rounds)
            if resume is not None:
                result = go_on(folder, on_round=on_round, on_note=print_notes(quiet))
            else:
                RunDirectory.refuse_taken(folder)
                prepared = prepare(chosen, dataset)
                result = run_prepared(chosen, prepared, folder, on_round, print_notes(quiet))
    except KeyboardInterrupt:
        told = f"The finished rounds are kept: go on with 'fedpu run --resume {folder}'." if folder.exists() else ""
        errors.print(f"Stopped. {told}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    page = save_report(read_groups([folder]), folder / "report.html")
    if json:
        print_json(result.summary | {"run": str(folder), "report": str(page)})
    else:
        output.print(
            f"{name}: {outcome(result.summary)} Run: {folder}, report: {page}", highlight=False, soft_wrap=True
        )


def outcome(summary: dict[str, Any]) -> str:
    """Say how a run ended: what was measured, on what, and after how much."""
    on = summary.get("measured_on")
    if summary["accuracy"] is None:
        measured = "trained, and not measured, since there is no test set,"
    elif on is None or on["is_accuracy"]:
        measured = f"accuracy {summary['accuracy']:.2%}"
    else:
        estimate = summary.get("estimates", {}).get("accuracy")
        told = ""
        if estimate is not None:
            told = f"; estimated accuracy {estimate:.0%}, from {summary['estimates']['priors']} class shares"
        measured = f"{summary['accuracy']:.2%} of {on['examples']:,} labelled examples set aside are right{told},"
    spent = f" ε {summary['epsilon']:.3g} at δ {summary['delta']:g}." if summary.get("epsilon") is not None else ""
    held = f" Validation {summary['validation']:.4f}." if summary.get("validation") is not None else ""
    return (
        f"{measured} after {summary['rounds']} rounds ({summary['clients']} clients, {summary['labelled']:,} of "
        f"{summary['examples']:,} examples labelled).{held}{spent}"
    )


def default_folder(config: Config) -> Path:
    """Return a new folder under ``runs/`` that says what and when, and a number where a second had several."""
    name = config.method.name.replace(":", ".")
    folder = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}-seed{config.seed}"
    others = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return folder if not folder.exists() else next(other for other in others if not other.exists())
