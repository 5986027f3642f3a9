"""``fedpu reproduce``: the paper's tables, beside the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable

from fedpu.cli.console import Json, Quiet, errors, output, print_json
from fedpu.errors import ConfigError
from fedpu.paper import Scale, Table, find_table, tables

if TYPE_CHECKING:
    from fedpu.applications.reproduction import PlannedRun, Progress

SHOWN = 8
"""runs that the live table shows of those done, and of those left"""


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE]...", help="Labels or numbers such as table:iid, noniid or 3; all without it."),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", "-n", min=1, help="Number of seeds, from 0 up.")] = 1,
    scale: Annotated[
        Literal["quick", "cpu", "paper"],
        typer.Option(
            "--scale",
            help="paper: the paper's rounds on the whole data; cpu: the same, with CIFAR-10 cut down to what two cores "
            "can carry; quick: a reduced look at every MNIST table in about ten minutes (and, by name, at CIFAR-10's, "
            "of a quarter of an hour each run).",
        ),
    ] = "paper",
    columns: Annotated[
        str,
        typer.Option("--columns", "-c", help="Run only these columns of the tables, such as fedpu,labelled-only."),
    ] = "",
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Runs at once; 0: one a core, or one on a GPU.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of runs and pages; by default runs/reproduce-SCALE."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Only list the tables, their rows and presets.")] = False,
    pages_only: Annotated[
        bool, typer.Option("--pages-only", help="Run nothing: make the pages from what is there.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce the paper's tables and show them beside the published numbers.

    Runs what is missing in the folder, several cells at once; stopped or killed, it goes on where it was when it is
    started again. Ends in results.md and results.html with paper, ours, difference, the share of the supervision gap
    closed and the learning curves. Examples: 'fedpu reproduce --scale quick', 'fedpu reproduce table:iid --seeds 3'.
    """
    chosen = choose(names or [], scale)
    if listing:
        show_tables(chosen, scale, json)
        return
    import torch

    from fedpu.applications.reproduction import outcomes, plan, working_in
    from fedpu.engine import cores
    from fedpu.report import reproduction_table, save_reproduction

    folder = out or Path("runs") / f"reproduce-{scale}"
    at_once = jobs or (1 if torch.cuda.is_available() else cores())
    numbers = range(seeds)
    if pages_only and not folder.is_dir():
        raise ConfigError(f"There is no folder '{folder}' to make pages from.")
    wanted = [name.strip() for name in columns.split(",") if name.strip()]
    runs = plan(chosen, scale, numbers, folder, wanted)
    try:
        if not pages_only:
            with working_in(folder):
                follow(runs, at_once, quiet)
    except KeyboardInterrupt:
        errors.print("Stopped. Finished rounds are kept: give the same command to go on.", highlight=False)
        raise typer.Exit(130) from None
    measured = outcomes(chosen, scale, numbers, folder)
    page = save_reproduction(measured, folder)
    if json:
        print_json({"folder": str(folder), "report": str(page), "tables": [outcome.to_dict() for outcome in measured]})
        return
    for outcome in measured:
        output.print(reproduction_table(outcome))
    output.print(f"All tables with curves: {page}", highlight=False, soft_wrap=True)


def choose(names: Sequence[str], scale: Scale) -> list[Table]:
    """Return the named tables; without names, all that the scale has but those on request."""
    if not names:
        return [table for table in tables() if table.offers(scale) and scale not in table.on_request]
    chosen = [find_table(name) for name in names]
    for table in chosen:
        if not table.offers(scale):
            raise ConfigError(f"{table.label} has no {scale} scale. Use --scale cpu, or --scale paper on a GPU.")
    return chosen


def show_tables(chosen: Sequence[Table], scale: Scale, json: bool) -> None:
    """Print the tables, their rows, and the preset of every cell."""
    from fedpu.report import heading, warning

    if json:
        cells = [cell for table in chosen for cell in table.cells() if cell.column.available]
        print_json(
            [
                {"preset": c.preset(scale), "table": c.table.label, "row": c.row.name, "published": c.published}
                for c in cells
            ]
        )
        return
    for table in chosen:
        output.print(heading(table), style="bold", highlight=False, soft_wrap=True)
        if warning(table, scale):
            output.print(warning(table, scale), highlight=False, soft_wrap=True, style="yellow")
        for row in table.rows:
            output.print(f"  row {row.number}: {row.name}", highlight=False, soft_wrap=True)
            for cell in table.cells():
                if cell.row is row and cell.column.available:
                    paper = "not in the paper" if cell.published is None else f"paper {cell.published:.2f} %"
                    output.print(f"    {cell.preset(scale):<40} {paper}", highlight=False)


def follow(runs: Sequence[PlannedRun], jobs: int, quiet: bool) -> None:
    """Carry the plan out, with a live table on a terminal and one line per finished run elsewhere."""
    from fedpu.applications.reproduction import carry_out

    if not quiet and errors.is_terminal:
        with Live(console=errors, refresh_per_second=4) as live:
            for progress in carry_out(runs, jobs):
                live.update(live_table(progress))
        return
    announced: set[str] | None = None
    for progress in carry_out(runs, jobs):
        if announced is None:
            announced = set(progress.done)
            lines = [f"{len(announced)} of {len(runs)} runs are there already."]
        else:
            lines = []
        for name in sorted(progress.done - announced):
            announced.add(name)
            lines.append(f"{name} done: {len(announced)} of {len(runs)}, {left(progress)}")
        if not quiet:
            for text in lines:
                errors.print(text, highlight=False, soft_wrap=True)


def left(progress: Progress) -> str:
    """Return the time to go, as text."""
    seconds = progress.seconds_left()
    if seconds is None:
        return "time to go not known yet"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"about {hours} h {minutes:02d} min to go" if hours else f"about {max(1, minutes)} min to go"


def live_table(progress: Progress) -> Group:
    """Return where things stand: runs under way with a bar each, the next ones, and totals."""
    waiting = [run for run in progress.runs if run.name not in progress.done and run.name not in progress.running]
    table = RichTable(title="the paper's tables", title_justify="left", header_style="bold")
    for name in ("run", "state", "rounds"):
        table.add_column(name)
    finished = [run for run in progress.runs if run.name in progress.done]
    for run in finished[-SHOWN:]:
        table.add_row(run.name, "done", str(run.config.aggregation.rounds), style="dim")
    for run in progress.runs:
        if run.name in progress.running:
            rounds, of = progress.running[run.name], run.config.aggregation.rounds
            table.add_row(run.name, ProgressBar(total=of, completed=rounds, width=24), f"{rounds} of {of}")
    for run in waiting[:SHOWN]:
        table.add_row(run.name, "left", str(run.config.aggregation.rounds))
    counts = f"{len(finished)} done, {len(progress.running)} running, {len(waiting)} left; {left(progress)}"
    return Group(table, counts)
