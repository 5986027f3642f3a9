"""A comparison for people: a table for the terminal, Markdown, learning curves, and one HTML page."""

from __future__ import annotations

import html
import statistics
from pathlib import Path
from typing import Any

from rich.table import Table

from fedpu.comparison import Comparison, Row
from fedpu.record import write_atomically
from fedpu.report.plot import METHOD_COLOURS, as_svg, save_figure, style

MEANING = {
    "positive-only": "labelled data alone (Baseline-1)",
    "supervised": "every label known (Baseline-2)",
    "conventional-pu": "negatives as one class (Baseline-3)",
    "fedpu": "labelled and unlabelled data",
}
HEADINGS = ("method", "trained on", "accuracy", "supervision gap closed", "seconds")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return a row as text: accuracies in per cent, mean ± standard deviation over seeds."""
    spread = f" ± {100 * row.std:.2f}" if len(row.accuracies) > 1 else ""
    gap = f"{statistics.fmean(row.gap_closed):.0%}" if row.gap_closed else "–"
    return (
        row.method,
        MEANING.get(row.method.partition("+")[0], ""),
        f"{100 * row.mean:.2f} %{spread}",
        gap,
        f"{row.seconds:.0f}",
    )


def table(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the headings and the rows, with a column for ε where a row has one."""
    rows: list[tuple[str, ...]] = [HEADINGS, *(cells(row) for row in comparison.rows)]
    if all(row.epsilon is None for row in comparison.rows):
        return rows
    spent = ["ε spent", *("–" if row.epsilon is None else f"{row.epsilon:.3g}" for row in comparison.rows)]
    return [(*row[:-1], epsilon, row[-1]) for row, epsilon in zip(rows, spent, strict=True)]


def terminal_table(comparison: Comparison) -> Table:
    """Return the table for a terminal."""
    shown = Table(title=title(comparison), title_justify="left", header_style="bold")
    headings, *rows = table(comparison)
    for index, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if index < 2 else "right")
    for row in rows:
        shown.add_row(*row, style="bold green" if row[0] == "fedpu" else "")
    shown.caption = "gap closed = (method − positive-only) / (supervised − positive-only), on the same partitions"
    shown.caption_justify = "left"
    return shown


def title(comparison: Comparison) -> str:
    """Return one line that says what was compared."""
    config = comparison.config
    part = config.partition.model_dump()
    seeds = f"{len(comparison.seeds)} seeds" if len(comparison.seeds) > 1 else f"seed {comparison.seeds[0]}"
    clients = f"{part['clients']} clients, " if "clients" in part else ""
    return f"{config.data.name}, {clients}{part['kind']}, {config.aggregation.rounds} rounds, {seeds}"


def markdown(comparison: Comparison) -> str:
    """Return the table as Markdown."""
    # Without the seconds, which belong to a machine and not to the methods.
    headings, *rows = (row[:-1] for row in table(comparison))
    rule = ["---" if index < 2 else "---:" for index in range(len(headings))]
    lines = [f"| {' | '.join(row)} |" for row in (headings, rule, *rows)]
    return f"{title(comparison)}\n\n" + "\n".join(lines) + "\n"


def curves_figure(comparison: Comparison) -> Any:
    """Return the learning curves: the mean over seeds, and the range of the seeds as a band."""
    figure, axes = style(7.5, 4.2)
    for index, row in enumerate(comparison.rows):
        colour = METHOD_COLOURS[index % len(METHOD_COLOURS)]
        rounds = [number for number, _ in row.curves[0]]
        values = [[100 * accuracy for _, accuracy in curve] for curve in row.curves]
        mean = [statistics.fmean(column) for column in zip(*values, strict=True)]
        axes.plot(rounds, mean, color=colour, linewidth=2)
        axes.fill_between(
            rounds,
            [min(c) for c in zip(*values, strict=True)],
            [max(c) for c in zip(*values, strict=True)],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
        axes.annotate(
            f" {row.method} {mean[-1]:.1f} %",
            (rounds[-1], mean[-1]),
            color=colour,
            va="center",
            fontsize=9,
            annotation_clip=False,
        )
    axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100))
    axes.margins(x=0)
    axes.grid(axis="y", alpha=0.3)
    return figure


def save_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write ``comparison.md``, ``curves.png``, ``curves.svg`` and ``report.html``; return the page."""
    figure = curves_figure(comparison)
    write_atomically(folder / "comparison.md", markdown(comparison).encode())
    save_figure(figure, folder / "curves.png")
    save_figure(figure, folder / "curves.svg")
    page = folder / "report.html"
    write_atomically(page, html_page(comparison, as_svg(figure)).encode())
    return page


def html_page(comparison: Comparison, curves: str) -> str:
    """Return one self-contained page: the table, the curves, the configuration."""
    headings, *lines = table(comparison)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    heads = "".join(f"<th>{heading}</th>" for heading in headings)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fedpu: {html.escape(title(comparison))}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733 }}
table {{ border-collapse: collapse; width: 100% }} th, td {{ padding: .4rem .7rem; border-bottom: 1px solid #d9e0e7 }}
th {{ text-align: left }} td:nth-child(n+3), th:nth-child(n+3) {{ text-align: right }}
svg {{ width: 100%; height: auto }} pre {{ background: #f4f6f8; padding: 1rem; overflow-x: auto }}
</style></head><body>
<h1>Comparison</h1><p>{html.escape(title(comparison))}</p>
<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>
<p>Gap closed = (method − positive-only) / (supervised − positive-only), on the same partitions.</p>
{curves}
<h2>Configuration</h2><pre>{html.escape(comparison.config.to_toml())}</pre>
</body></html>
"""
