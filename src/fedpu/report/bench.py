"""Measurements of speed for people: a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from fedpu.applications.bench import Bench, Measurement
from fedpu.applications.cost import OURS, PLAIN, Cost
from fedpu.record import write_atomically
from fedpu.report.plot import METHOD_COLOURS, save_figure, style

HEADINGS = ("clients", "examples each", "best (s)", "median (s)", "examples/s", "memory (MB)")


def bench_table(result: Bench) -> Table:
    """Return the table for a terminal."""
    table = Table(title="a round over 60,000 images", title_justify="left", header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for size in result.sizes:
        table.add_row(*_cells(size))
    table.caption = fixed_costs(result)
    table.caption_justify = "left"
    return table


def bench_markdown(result: Bench) -> str:
    """Return the table as Markdown."""
    rows = [HEADINGS, ("---:",) * len(HEADINGS), *(_cells(size) for size in result.sizes)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + f"\n\n{fixed_costs(result)}\n"


def fixed_costs(result: Bench) -> str:
    """Return what a round and a client cost however little they do."""
    a_round, a_client = 1000 * result.seconds_per_round, 1000 * result.seconds_per_client
    return f"fixed cost of a round {a_round:.2f} ms, of a client {a_client:.3f} ms (mlp, one example)"


def _cells(size: Measurement) -> tuple[str, ...]:
    return (
        f"{size.clients:,}",
        f"{size.examples / size.clients:,.0f}",
        f"{size.best:.2f}",
        f"{size.median:.2f}",
        f"{size.examples / size.best:,.0f}",
        f"{size.memory_mb:,.0f}",
    )


def save_bench(result: Bench, path: Path) -> None:
    """Write the table to a Markdown file, or draw seconds per round against the number of clients to a picture."""
    if path.suffix.lower() == ".md":
        write_atomically(path, bench_markdown(result).encode())
        return
    figure, axes = style(6.5, 3.8)
    clients = [size.clients for size in result.sizes]
    axes.loglog(clients, [size.best for size in result.sizes], "o-", color=METHOD_COLOURS[0], label="best")
    axes.loglog(clients, [size.median for size in result.sizes], "o:", color=METHOD_COLOURS[2], label="median")
    axes.set(xlabel="clients", ylabel="seconds per round", title="60,000 images in all")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, path)


COST_HEADINGS = ("who", "best (s)", "median (s)", "examples/s", "memory (MB)")


def cost_table(result: Cost) -> Table:
    """Return what one configuration costs, for a terminal."""
    table = Table(title=_what(result), title_justify="left", header_style="bold")
    for heading in COST_HEADINGS:
        table.add_column(heading, justify="left" if heading == "who" else "right", no_wrap=True)
    for cells in _cost_cells(result):
        table.add_row(*cells)
    return table


def cost_markdown(results: Sequence[Cost]) -> str:
    """Return what configurations cost as one Markdown table, with a sentence for each below."""
    rule = ("---", "---", *("---:" for _ in COST_HEADINGS[1:]))
    rows = [("what", *COST_HEADINGS), rule]
    rows += [(_what(result), *cells) for result in results for cells in _cost_cells(result)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(f"- {_what(result)}: {' '.join(cost_notes(result))}" for result in results)
    return f"{table}\n\n{notes}\n"


def _what(result: Cost) -> str:
    shape = "×".join(map(str, result.shape))
    each = f"{result.clients:,} × {result.examples / result.clients:,.0f}"
    return f"{result.model} ({result.parameters:,} parameters) on {shape}, {each}"


def cost_notes(result: Cost) -> list[str]:
    """Return what follows from the table: the time of the whole run, and how that compares."""
    seconds = result.expected_seconds
    told = f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds:.0f} s"
    notes = [
        f"The whole run is expected to take {told}: {result.rounds} rounds of {result.contestants[0].median:.2f} s, "
        f"{result.evaluations} measurements of {result.evaluation_seconds:.2f} s."
    ]
    if result.times_plain is not None:
        processes = f"{result.workers} plain processes" if result.workers > 1 else "one plain process"
        notes.append(f"With cross-entropy {result.times_plain:.2f} times as fast as {processes}.")
    if result.slow_because is not None:
        notes.append(f"Clients are trained one after another: {result.slow_because}.")
    return notes


def _cost_cells(result: Cost) -> list[tuple[str, ...]]:
    names = {OURS: f"fedpu, {result.method}", PLAIN: f"{PLAIN}, {result.workers} × 1 thread"}
    return [
        (
            names.get(one.name, one.name),
            f"{one.best:.2f}",
            f"{one.median:.2f}",
            f"{result.examples / one.best:,.0f}",
            f"{one.memory_mb:,.0f}",
        )
        for one in result.contestants
    ]
