"""Measurements of speed for people: a table and a plot."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from fedpu.bench import Bench
from fedpu.report.plot import METHOD_COLOURS, save_figure, style


def bench_table(result: Bench) -> Table:
    """Return the table for a terminal."""
    table = Table(title="a round over 60,000 images", title_justify="left", header_style="bold")
    for heading in ("clients", "examples each", "best (s)", "median (s)", "examples/s", "memory (MB)"):
        table.add_column(heading, justify="right")
    for size in result.sizes:
        table.add_row(
            f"{size.clients:,}",
            f"{size.examples / size.clients:,.0f}",
            f"{size.best:.2f}",
            f"{size.median:.2f}",
            f"{size.examples / size.best:,.0f}",
            f"{size.memory_mb:,.0f}",
        )
    a_round, a_client = 1000 * result.seconds_per_round, 1000 * result.seconds_per_client
    table.caption = f"fixed cost of a round {a_round:.2f} ms, of a client {a_client:.3f} ms (mlp, one example)"
    table.caption_justify = "left"
    return table


def save_bench(result: Bench, path: Path) -> None:
    """Draw seconds a round against the number of clients."""
    figure, axes = style(6.5, 3.8)
    clients = [size.clients for size in result.sizes]
    axes.loglog(clients, [size.best for size in result.sizes], "o-", color=METHOD_COLOURS[0], label="best")
    axes.loglog(clients, [size.median for size in result.sizes], "o:", color=METHOD_COLOURS[2], label="median")
    axes.set(xlabel="clients", ylabel="seconds a round", title="60,000 images in all")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_figure(figure, path)
