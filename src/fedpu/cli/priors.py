"""``fedpu priors``: estimate every client's class priors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpu.cli import known
from fedpu.cli.console import (
    ConfigFile,
    Json,
    Overrides,
    Preset,
    Quiet,
    errors,
    load_config,
    output,
    print_json,
    round_progress,
)
from fedpu.errors import ConfigError, warn


def priors(
    config: ConfigFile = None,
    preset: Preset = None,
    overrides: Overrides = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            "--estimator", "-e", help=f"{', '.join(known.names('estimators'))}; by default the configured one."
        ),
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(
            "--bootstrap",
            min=0,
            help="Resamples for intervals of estimates that are not shrunk; 0 leaves all bounds out.",
        ),
    ] = 100,
    level: Annotated[float, typer.Option("--level", help="Of the intervals.")] = 0.95,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run directory of the training; started again, it goes on where it was."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw the estimates against the truth (PNG, SVG or PDF).")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate the class priors of every client from its own data and the global model, knowing nothing beforehand.

    Trains as configured where the estimator needs a model ('priors.features=inputs' looks at the examples themselves
    instead), then prints each client's estimate with its interval, beside the true class shares where the data tell
    them. Example: 'fedpu priors --preset quickstart --picture priors.png'.
    """
    from fedpu.applications.prior_estimates import estimate_priors
    from fedpu.report import check_picture, priors_figure, priors_table, save_figure

    if picture is not None:
        check_picture(picture)
    chosen = load_config(config, preset, overrides)
    if estimator is not None:
        chosen = chosen.with_(f"priors.estimator={estimator}")
    if not chosen.method.needs_priors:
        name = chosen.method.model_dump()["name"]
        raise ConfigError(f"The method '{name}' needs no class priors. Set method.name=fedpu.")
    try:
        with round_progress(quiet) as progress:
            result = estimate_priors(
                chosen,
                out=out,
                bootstrap=bootstrap,
                level=level,
                on_round=progress.start("training", chosen.aggregation.rounds) if chosen.priors.needs_model else None,
            )
    except KeyboardInterrupt:
        kept = f"Finished rounds are kept: give --out {out} again to go on." if out else ""
        errors.print(f"Stopped. {kept}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    if result.warning:
        warn(result.warning)
    if picture is not None:
        save_figure(priors_figure(result), picture)
    if json:
        print_json(result.to_dict())
        return
    output.print(priors_table(result))
    if picture is not None:
        output.print(f"Picture: {picture}", highlight=False, soft_wrap=True)
