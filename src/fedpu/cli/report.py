"""``fedpu report``: one page of runs that are there already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedpu.cli.console import Json, output, print_json


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories, or folders of them as 'compare' makes.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; by default report.html in the first RUN.")
    ] = None,
    json: Json = False,
) -> None:
    """Make one self-contained HTML page of one run or of many, finished or not.

    Runs that differ in nothing but the seed are shown as one method. Example: 'fedpu report runs/a runs/b --out
    both.html'.
    """
    from fedpu.report import read_groups, write_report

    page = write_report(*runs, out=out)
    if json:
        methods = {group.label: {"accuracy": group.mean, "seeds": len(group.runs)} for group in read_groups(runs)}
        print_json({"report": str(page), "methods": methods})
    else:
        output.print(f"Report: {page}", highlight=False, soft_wrap=True)
