"""``fedpu watch``: look at runs while they go on, from another shell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpu.cli.console import Json, errors, output, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from fedpu.record import Progress


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a folder of several.")],
    once: Annotated[bool, typer.Option("--once", help="Say how things stand, and end.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between looks.")] = 1.0,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait for the next run when nobody is at work.")
    ] = 5.0,
    json: Json = False,
) -> None:
    """Follow a run, or all runs of a folder, until nobody is at work on them any more.

    Reads what is recorded and touches nothing. On a terminal the table is live; elsewhere a line is printed for every
    change, with --json one JSON value at the end.
    """
    looks = _looks(run, once, every, patience)
    if json:
        *_, last = looks
        print_json([one.to_dict() for one in last])
    elif output.is_terminal and not once:
        from rich.live import Live

        with Live(console=output, refresh_per_second=4) as live:
            for found in looks:
                live.update(_table(found))
    else:
        _lines(looks)


def _looks(run: Path, once: bool, every: float, patience: float) -> Iterator[list[Progress]]:
    """Look again and again, until all is done: a comparison takes a moment between one run and the next."""
    from fedpu.record import progress_of

    at_work = time.monotonic()
    while True:
        found = progress_of(run)
        yield found
        if any(one.state == "running" for one in found):
            at_work = time.monotonic()
        alone = len(found) == 1 and found[0].path == run and found[0].state == "finished"
        if once or alone or time.monotonic() - at_work >= patience:
            break
        try:
            time.sleep(every)
        except KeyboardInterrupt:  # that is how one stops watching
            break


def _lines(looks: Iterator[list[Progress]]) -> None:
    printed: set[str] = set()
    stopped: list[Progress] = []
    for found in looks:
        for one in found:
            line = f"{one.name}: {one.sentence}"
            if line not in printed:
                printed.add(line)
                print(line, flush=True)
        stopped = [one for one in found if one.state == "stopped"]
    for one in stopped:
        errors.print(f"Nobody is at work on {one.path}: go on with 'fedpu run --resume {one.path}'.", soft_wrap=True)


def _table(found: list[Progress]) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table(header_style="bold")
    for heading in ("run", "", "round", "accuracy", "left", "state"):
        table.add_column(heading)
    for one in found:
        table.add_row(
            one.name,
            ProgressBar(total=one.rounds, completed=one.done, width=24),
            f"{one.done} of {one.rounds}",
            "–" if one.accuracy is None else f"{one.accuracy:.2%}",
            one.left or "",
            one.state,
        )
    return table
