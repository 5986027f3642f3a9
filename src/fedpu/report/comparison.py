"""A comparison for people: a table for the terminal, Markdown, learning curves, and one HTML page."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from fedpu.applications.comparison import Comparison, Row, folder_name, is_end
from fedpu.method import METHODS
from fedpu.record import write_atomically
from fedpu.report.colours import Style, styles
from fedpu.report.page import Group, RecordedRun, groups_of, save_report
from fedpu.report.plot import can_draw, line_style, save_figure, style

VALIDATION = "validation (lower is better)"
ACCURACY = "accuracy"
HEADINGS = ("method", "trained on", ACCURACY, "supervision gap closed", "seconds")


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return a row as text: accuracies in per cent, mean ± standard deviation over seeds."""
    spread = f" ± {100 * row.std:.2f}" if len(row.accuracies) > 1 else ""
    gap = f"{statistics.fmean(row.gap_closed):.0%}" if row.gap_closed else "–"
    return (
        row.method,
        METHODS[row.method.partition("+")[0]].trained_on,
        f"{100 * row.mean:.2f} %{spread}",
        gap,
        f"{row.seconds:.0f}",
    )


def table(comparison: Comparison) -> list[tuple[str, ...]]:
    """Return the headings and the rows, with columns for ε and for the validation score where a row has one."""
    headings = tuple(measure_name(comparison) if text == ACCURACY else text for text in HEADINGS)
    rows: list[tuple[str, ...]] = [headings, *(cells(row) for row in comparison.rows)]
    for heading, texts in (
        (VALIDATION, [validation_cell(row) for row in comparison.rows]),
        ("ε spent", ["–" if row.epsilon is None else f"{row.epsilon:.3g}" for row in comparison.rows]),
    ):
        if any(text != "–" for text in texts):
            rows = [(*row[:-1], text, row[-1]) for row, text in zip(rows, [heading, *texts], strict=True)]
    return rows


def measure_name(comparison: Comparison) -> str:
    """Return what the numbers are: an accuracy only where they were measured on examples that stand for the data."""
    on = comparison.measured_on
    return ACCURACY if on is None or on["is_accuracy"] else f"right of {on['set']}"


def validation_cell(row: Row) -> str:
    """Return the score on what clients hold out; that of a method which is given every label is another quantity."""
    if row.validations is None or METHODS[row.method.partition("+")[0]].fully_labelled:
        return "–"
    spread = f" ± {statistics.stdev(row.validations):.4f}" if len(row.validations) > 1 else ""
    return f"{statistics.fmean(row.validations):.4f}{spread}"


def gap_text(comparison: Comparison) -> str:
    """Return what the share of the gap is, with this comparison's baselines."""
    names, several = {}, ""
    ends: dict[Literal["lower", "upper"], str] = {"lower": "Baseline-1", "upper": "Baseline-2"}
    for end, paper in ends.items():
        methods = [row.method for row in comparison.rows if is_end(row.method, end)]
        names[end] = methods[0] if len(methods) == 1 else paper
        if len(methods) > 1:
            several += f"; {paper}: the best of {', '.join(methods)} in each seed"
    lower, upper = names["lower"], names["upper"]
    return f"gap closed = (method − {lower}) / ({upper} − {lower}), on the same partitions{several}"


def terminal_table(comparison: Comparison) -> Table:
    """Return the table for a terminal."""
    shown = Table(title=title(comparison), title_justify="left", header_style="bold")
    headings, *rows = table(comparison)
    own = comparison.config.method.name
    for index, heading in enumerate(headings):
        shown.add_column(heading, justify="left" if index < 2 else "right")
    for row in rows:
        shown.add_row(*row, style="bold green" if row[0] == own else "")
    shown.caption = gap_text(comparison)
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
    """Return the learning curves: the mean over seeds, and the range of the seeds as a band.

    Where clients hold data out, a second panel has the score there.
    """
    drawn = styles(row.method for row in comparison.rows)
    scored = [row for row in comparison.rows if validation_cell(row) != "–"]
    if scored:
        figure, (axes, right) = style(13.0, 4.2, panels=2, sharey=False)
        ends = []
        for row in scored:
            assert row.validation_curves is not None
            ends.append(_draw(right, row.method, row.validation_curves, drawn[row.method], "{:.4f}"))
        right.set(xlabel="round", ylabel=VALIDATION)
        right.margins(x=0)
        _name(right, ends)
        right.grid(axis="y", alpha=0.3)
    else:
        figure, axes = style(7.5, 4.2)
    ends = []
    for row in comparison.rows:
        curves = [[(number, 100 * accuracy) for number, accuracy in curve] for curve in row.curves]
        ends.append(_draw(axes, row.method, curves, drawn[row.method], "{:.1f} %"))
    name = measure_name(comparison)
    axes.set(xlabel="round", ylabel=f"{'test ' * (name == ACCURACY)}{name} (%)", ylim=(0, 100))
    axes.margins(x=0)
    _name(axes, ends)
    axes.grid(axis="y", alpha=0.3)
    return figure


End = tuple[str, float, str]
"""the name of a line, where it ends, and its colour"""


def _draw(axes: Any, name: str, curves: list[list[tuple[int, float]]], drawn: Style, form: str) -> End:
    rounds = [number for number, _ in curves[0]]
    values = [[value for _, value in curve] for curve in curves]
    mean = [statistics.fmean(column) for column in zip(*values, strict=True)]
    axes.plot(rounds, mean, color=drawn.light, linewidth=2, linestyle=line_style(drawn))
    axes.fill_between(
        rounds,
        [min(c) for c in zip(*values, strict=True)],
        [max(c) for c in zip(*values, strict=True)],
        color=drawn.light,
        alpha=0.15,
        linewidth=0,
    )
    return f" {name} {form.format(mean[-1])}", mean[-1], drawn.light


def _name(axes: Any, ends: list[End]) -> None:
    """Write the names beside the ends of the lines, moved apart where they would meet, and kept inside."""
    low, high = axes.get_ylim()
    gap = 0.052 * (high - low)
    places: list[float] = []
    for _, y, _ in sorted(ends, key=lambda end: end[1]):
        places.append(max(y, places[-1] + gap) if places else y)
    for index in reversed(range(len(places))):
        places[index] = min(places[index], high - (len(places) - 1 - index) * gap)
    for (text, _, colour), y in zip(sorted(ends, key=lambda end: end[1]), places, strict=True):
        place = (axes.get_xlim()[1], y)
        axes.annotate(text, place, color=colour, va="center", fontsize=9, annotation_clip=False)


def save_comparison(comparison: Comparison, folder: Path) -> Path:
    """Write ``comparison.md`` and ``report.html``, and, where matplotlib is installed, ``curves.png`` and
    ``curves.svg``; return the page.
    """
    write_atomically(folder / "comparison.md", markdown(comparison).encode())
    if can_draw():
        figure = curves_figure(comparison)
        save_figure(figure, folder / "curves.png")
        save_figure(figure, folder / "curves.svg")
    return save_report(recorded(comparison, folder), folder / "report.html")


def recorded(comparison: Comparison, folder: Path) -> list[Group]:
    """Return the runs of a comparison as they are recorded in its folder."""
    labels = {
        folder / folder_name(row.method, seed): row.method for row in comparison.rows for seed in comparison.seeds
    }
    return groups_of([RecordedRun.read(path) for path in labels], labels)
