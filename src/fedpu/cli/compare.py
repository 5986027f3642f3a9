"""``fedpu compare``: several methods on the same partitions and seeds."""

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
    going_on_in,
    output,
    print_json,
    print_notes,
    round_progress,
)
from fedpu.valid_json import json_text


def compare(
    config: ConfigFile = None,
    preset: Preset = None,
    overrides: Overrides = None,
    data: OwnData = None,
    methods: Annotated[
        str,
        typer.Option(
            "--methods",
            "-m",
            help=f"Comma-separated: {', '.join(known.names('methods'))}; with settings of their own: NAME+key=value.",
        ),
    ] = ",".join(known.names("usual_methods")),
    seeds: Annotated[
        int, typer.Option("--seeds", "-n", min=1, help="Number of seeds, counted up from the configured one.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the runs and the report; started again, it goes on where it was."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train several methods on the same partitions and seeds, and print one table.

    Accuracies are mean ± standard deviation over seeds. The supervision gap lies between Baseline-1, which throws the
    unlabelled data away (the best of those that are compared), and Baseline-2, which is given every label. Example:
    'fedpu compare --preset quickstart --seeds 3'.
    """
    from fedpu.applications import comparison
    from fedpu.record import write_atomically
    from fedpu.report import save_comparison, terminal_table

    chosen, dataset = configured(config, preset, overrides or [], data)
    folder = out or Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-compare"
    with going_on_in(folder), round_progress(quiet) as progress:
        result = comparison.compare(
            chosen,
            methods,
            range(chosen.seed, chosen.seed + seeds),
            dataset=dataset,
            out=folder,
            on_run=lambda method, seed: progress.start(
                f"{method} (seed {seed})" if seeds > 1 else method, chosen.aggregation.rounds
            ),
            on_note=print_notes(quiet),
        )
    write_atomically(folder / "comparison.json", json_text(result.to_dict(), indent=2).encode())
    page = save_comparison(result, folder)
    if json:
        print_json(result.to_dict() | {"folder": str(folder), "report": str(page)})
    else:
        output.print(terminal_table(result))
        output.print(f"Curves and the full report: {page}", highlight=False, soft_wrap=True)
