"""The paper's tables beside ours: a Markdown page, an HTML page, and the learning curves of every row."""

from __future__ import annotations

import html
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable

from fedpu.aggregation import AGGREGATIONS
from fedpu.applications.reproduction import CellOutcome, RowOutcome, TableOutcome
from fedpu.augmentation import VIEWS
from fedpu.models import MODELS
from fedpu.paper import Scale, Table
from fedpu.record import write_atomically
from fedpu.report.colours import Style, styles
from fedpu.report.page import Chart, on_common_axis, over_seeds, page
from fedpu.report.plot import can_draw, line_style, panels, save_figure

HEADINGS = ("row", "method", "paper", "ours", "difference", "minus FedPU", "gap closed: paper", "ours")
REDUCED = {
    "quick": "REDUCED: a quick look at a fifteenth of the data or fewer rounds. These numbers are not the paper's "
    "setting.",
    "cpu": "Reduced to what two cores can carry; the paper's scale is a preset for a GPU.",
}
QUESTION = "How near does fedpu come to the numbers that the paper printed?"
EXPLANATION = (
    "Accuracies in per cent on the test set after the last round, mean ± standard deviation where there are several "
    "seeds. Minus FedPU = accuracy minus FedPU's on the same partition: the mean over the seeds that both have been "
    "run with, and a 95 % interval of Student's t. Gap closed = (method − Baseline-1) / (Baseline-2 − Baseline-1), "
    "all three on the same partition; of several Baseline-1s the best of each seed. For aligned, Baseline-1 and "
    "Baseline-2 are those that see the same views."
)


def heading(table: Table) -> str:
    """Return a table's name for people."""
    return f"Table {table.number} ({table.label}): {table.title}"


def warning(table: Table, scale: Scale) -> str:
    """Return what must be said where a table is shown at less than the paper's scale; nothing at that scale."""
    return REDUCED[scale] if table.reduced(scale) else ""


def line(row: RowOutcome, cell: CellOutcome) -> tuple[str, ...]:
    """Return a cell as a line of text."""
    ours = "–" if cell.mean is None else f"{cell.mean:.2f}"
    if cell.std is not None:
        ours += f" ± {cell.std:.2f}"
    return (
        row.row.name if cell is row.cells[0] else "",
        cell.cell.column.heading,
        "–" if cell.cell.published is None else f"{cell.cell.published:.2f}",
        ours,
        "–" if cell.difference is None else f"{cell.difference:+.2f}",
        less_ours(cell),
        "–" if cell.published_gap is None else f"{cell.published_gap:.0%}",
        "–" if cell.gap is None else f"{cell.gap:.0%}",
    )


def less_ours(cell: CellOutcome) -> str:
    """Return the paired difference to the paper's own method with its interval, or that there is one seed."""
    difference = cell.paired
    if difference is None:
        return "–"
    if difference.interval is None:
        return f"{difference.mean:+.2f} (one seed)"
    low, high = difference.interval
    return f"{difference.mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def reproduction_table(outcome: TableOutcome) -> RichTable:
    """Return a table for the terminal."""
    shown = RichTable(title=heading(outcome.table), title_justify="left", header_style="bold", box=None, pad_edge=False)
    for index, text in enumerate(HEADINGS):
        shown.add_column(text, justify="left" if index < 2 else "right")
    for row in outcome.rows:
        for cell in row.cells:
            ours = cell.cell.column.ours
            shown.add_row(*line(row, cell), style="bold green" if ours else "", end_section=cell is row.cells[-1])
    note = warning(outcome.table, outcome.scale)
    if note:
        shown.caption, shown.caption_justify, shown.caption_style = note, "left", "yellow"
    return shown


def markdown(outcomes: Sequence[TableOutcome]) -> str:
    """Return all tables, each with its notes, its curves and the command of every cell."""
    return "\n".join(_markdown_table(outcome) for outcome in outcomes)


def _markdown_table(outcome: TableOutcome) -> str:
    table, scale = outcome.table, outcome.scale
    lines = [f"## {heading(table)}", ""]
    if warning(table, scale):
        lines += [f"**{warning(table, scale)}**", ""]
    lines += [settings_line(outcome), ""]
    lines += [f"| {' | '.join(HEADINGS)} |", "| --- | --- |" + " ---: |" * (len(HEADINGS) - 2)]
    for row in outcome.rows:
        for cell in row.cells:
            texts = line(row, cell)
            if cell.cell.column.ours:
                texts = (texts[0], *(text if text == "–" else f"**{text}**" for text in texts[1:]))
            lines.append(f"| {' | '.join(texts)} |")
    lines += ["", *(f"- {note}" for note in table.notes)]
    if _has_picture(outcome):
        lines += ["", f"![Learning curves of {table.label}]({curves_name(outcome)})"]
    commands = [
        f"fedpu run --preset {cell.cell.preset(scale)}{'' if seed == 0 else f' --set seed={seed}'}  # {accuracy:.2f} %"
        for row in outcome.rows
        for cell in row.cells
        for seed, accuracy in cell.accuracies.items()
    ]
    if commands:
        lines += ["", "<details><summary>One command a cell</summary>", "", "```sh", *commands, "```", "", "</details>"]
    return "\n".join(lines) + "\n"


def settings_line(outcome: TableOutcome) -> str:
    """Return the settings that matter for reading the numbers, from the recorded configurations' own source."""
    cells = [cell.cell for cell in outcome.rows[0].cells]
    values = cells[0].settings(outcome.scale)
    defaults = {"rounds": 200, "lr": 0.01, "momentum": 0.5}
    training = defaults | values.get("aggregation", {})
    rates: dict[float, list[str]] = {}
    for cell in cells:
        rate = cell.settings(outcome.scale).get("aggregation", {}).get("lr", defaults["lr"])
        rates.setdefault(rate, []).append(f'"{cell.column.heading}"')
    most, *others = sorted(rates, key=lambda rate: -len(rates[rate]))
    exceptions = "; ".join(f"{rate} for {', '.join(rates[rate])}" for rate in others)
    training["lr"] = f"{most} ({exceptions})" if others else most
    model = values.get("model", {"name": next(iter(MODELS))})
    network = model["name"] + "".join(f", {key} {value}" for key, value in model.items() if key != "name")
    views = {
        f"{key} view" if key in VIEWS else key: " + ".join(value) if isinstance(value, list) else value
        for key, value in values.get("augmentation", {}).items()
    }
    network += "".join(f", {key} {value}" for key, value in views.items())
    named = training.pop("name", next(iter(AGGREGATIONS)))
    rest = ", ".join(f"{key} {value}" for key, value in training.items())
    return f"Data {values['data']['name']}, network {network}, {named}: {rest}."


def curves_name(outcome: TableOutcome) -> str:
    """Return the file name of a table's curves."""
    return f"table{outcome.table.number}.svg"


def _has_picture(outcome: TableOutcome) -> bool:
    """Is there something to draw, and something to draw it with?"""
    return can_draw() and any(cell.curves for row in outcome.rows for cell in row.cells)


def _drawn(outcome: TableOutcome) -> dict[str, Style]:
    """Return how each column is drawn, as its method is everywhere else."""
    columns = [column for column in outcome.table.columns if column.available]
    own = {column.key: column.settings.get("method", {}) for column in columns}
    names = {
        key: "+".join([method.get("name", key), *(f"{k}={v}" for k, v in method.items() if k != "name")])
        for key, method in own.items()
    }
    first = {name: key for key, name in reversed(names.items())}
    # Two columns of one method, such as one with views and one without, are variants that no line should hide.
    names = {key: name if first[name] == key else f"{name}+{key}" for key, name in names.items()}
    found = styles(names.values())
    return {key: found[name] for key, name in names.items()}


def curves_figure(outcome: TableOutcome) -> Any:
    """Return the learning curves, one panel per row: the mean over seeds, and their range as a band."""
    drawn = _drawn(outcome)
    figure, axes = panels(len(outcome.rows))
    for place, row in zip(axes, outcome.rows, strict=True):
        lowest = 100.0
        for cell in row.cells:
            if not cell.curves:
                continue
            by_round = [dict(curve) for curve in cell.curves.values()]
            rounds = [number for number in by_round[0] if all(number in curve for curve in by_round)]
            columns = [[curve[number] for curve in by_round] for number in rounds]
            mean = [statistics.fmean(column) for column in columns]
            own = drawn[cell.cell.column.key]
            colour, dashes = own.light, line_style(own)
            place.plot(rounds, mean, color=colour, linewidth=1.6, linestyle=dashes, label=cell.cell.column.heading)
            place.fill_between(
                rounds,
                [min(column) for column in columns],
                [max(column) for column in columns],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
            lowest = min(lowest, mean[len(mean) // 4])
            if cell.cell.published is not None:
                place.axhline(cell.cell.published, color=colour, linewidth=0.9, linestyle=":")
                lowest = min(lowest, cell.cell.published)
        place.set_title(row.row.name, fontsize=9)
        place.set_xlabel("round", fontsize=8)
        place.set_ylim(max(0.0, lowest - 5), 100)
        place.grid(axis="y", alpha=0.3)
    shown = {label: line for place in axes for line, label in zip(*place.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=len(shown), fontsize=8, frameon=False)
    reduced = f" ({outcome.scale}: reduced)" if outcome.table.reduced(outcome.scale) else ""
    figure.suptitle(f"{outcome.table.label}{reduced}; dotted: the paper", fontsize=10)
    figure.supylabel("test accuracy (%)", fontsize=9)
    return figure


def save_reproduction(outcomes: Sequence[TableOutcome], out: Path) -> Path:
    """Write ``results.md``, ``results.html`` and, where matplotlib is installed, a picture of each table; return the
    page.
    """
    for outcome in outcomes:
        if _has_picture(outcome):
            save_figure(curves_figure(outcome), out / curves_name(outcome))
    write_atomically(out / "results.md", markdown(outcomes).encode())
    path = out / "results.html"
    write_atomically(path, html_page(outcomes).encode())
    return path


def html_page(outcomes: Sequence[TableOutcome]) -> str:
    """Return one self-contained page with every table and its curves."""
    scale = outcomes[0].scale
    reduced = sum(outcome.table.reduced(scale) for outcome in outcomes)
    some = "" if reduced == len(outcomes) else "some tables "
    title = f"fedpu: the paper's tables{f' ({scale} scale: {some}reduced)' if reduced else ''}"
    body = "".join(map(_html_table, outcomes))
    return page(
        title,
        f"""<h1>{html.escape(title)}</h1>
<p class="question">{html.escape(QUESTION)}</p>
<p class="verdict">{html.escape(verdict(outcomes))}</p>
<p class="soft">{html.escape(EXPLANATION)}</p>
{body}""",
    )


def verdict(outcomes: Sequence[TableOutcome]) -> str:
    """Return in a sentence how the paper's own method stands to its printed numbers."""
    cells = [cell for outcome in outcomes for row in outcome.rows for cell in row.cells if cell.cell.column.ours]
    found = [cell.difference for cell in cells if cell.difference is not None]
    if not found:
        return f"None of the {len(cells)} cells of the paper's method has been run yet."
    above = sum(difference >= 0 for difference in found)
    reduced = any(outcome.table.reduced(outcome.scale) for outcome in outcomes)
    caution = " Some were run at a reduced scale, which is not the paper's setting." if reduced else ""
    return (
        f"The paper's method reaches or passes its published accuracy in {above} of the {len(found)} cells that were "
        f"run ({min(found):+.2f} to {max(found):+.2f} points).{caution}"
    )


def _html_table(outcome: TableOutcome) -> str:
    heads = "".join(f'<th scope="col">{text}</th>' for text in HEADINGS)
    rows = []
    for row in outcome.rows:
        for cell in row.cells:
            classes = ["first"] * (cell is row.cells[0]) + ["ours"] * cell.cell.column.ours
            texts = "".join(f"<td>{html.escape(text)}</td>" for text in line(row, cell))
            rows.append(f'<tr class="{" ".join(classes)}">{texts}</tr>')
    note = warning(outcome.table, outcome.scale)
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in outcome.table.notes)
    drawn = _drawn(outcome)
    charts = "".join(chart.figure() for row in outcome.rows if (chart := _row_chart(outcome, row, drawn)) is not None)
    name = heading(outcome.table)
    return f"""<section><h2>{html.escape(name)}</h2>
{f'<p class="note">{html.escape(note)}</p>' if note else ""}
<p class="soft">{html.escape(settings_line(outcome))}</p>
<div class="wide" tabindex="0" role="group" aria-label="{html.escape(name, quote=True)}">
<table class="results paper"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div><ul>{notes}</ul>
{f'<div class="grid">{charts}</div>' if charts else ""}</section>
"""


def _row_chart(outcome: TableOutcome, row: RowOutcome, drawn: dict[str, Style]) -> Chart | None:
    """Return the curves of a row, with the published numbers as dotted lines."""
    pairs, levels = [], {}
    for cell in row.cells:
        column = cell.cell.column
        if not cell.curves:
            continue
        pairs.append(over_seeds([dict(curve) for curve in cell.curves.values()], column.heading, drawn[column.key]))
        if cell.cell.published is not None:
            levels[column.heading] = (cell.cell.published, drawn[column.key])
    if not pairs:
        return None
    rounds, series = on_common_axis(pairs)
    told = "; ".join(
        f"{cell.cell.column.heading}: ours {cell.mean:.2f} %"
        + (f", the paper {cell.cell.published:.2f} %" if cell.cell.published is not None else "")
        for cell in row.cells
        if cell.mean is not None
    )
    lowest = min([value for one in series for value in one.values[len(rounds) // 4 :] if value is not None])
    lowest = min([lowest, *(value for value, _ in levels.values())])
    return Chart(
        f"{outcome.table.label}, {row.row.name}",
        f"{told}. Dotted: the paper's numbers.",
        rounds,
        series,
        y_label="test accuracy (%)",
        unit=" %",
        bounds=(max(0.0, 5 * (lowest // 5 - 1)), 100.0),
        height=300,
        levels=levels,
    )
