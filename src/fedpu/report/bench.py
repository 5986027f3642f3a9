"""Measurements of speed for people: a table and a plot."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from fedpu.applications.bench import Bench, Measurement
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
