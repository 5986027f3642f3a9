"""Line charts as plain data for the page's charting library, each with its title, a description and its numbers."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from fedpu.report.colours import STYLES, Style

Numbers = Sequence[float | None]
ROWS = 21
"""rounds that the table of numbers has at most; the chart has all"""


@dataclass(frozen=True)
class Series:
    """A line, or points, with the range over seeds around it."""

    label: str
    values: Numbers
    style: Style
    low: Numbers | None = None
    high: Numbers | None = None
    points: bool = False
    """points without a line"""

    def to_dict(self) -> dict[str, Any]:
        """Return it as the page's script reads it."""
        return {
            "label": self.label,
            "values": self.values,
            "low": self.low,
            "high": self.high,
            "light": self.style.light,
            "dark": self.style.dark,
            "dash": list(self.style.dash),
            "stroke": self.style.stroke,
            "points": self.points,
        }


@dataclass(frozen=True)
class Chart:
    """A chart over rounds or over another number."""

    title: str
    description: str
    x: Sequence[int] | Sequence[float]
    series: Sequence[Series]
    x_label: str = "round"
    y_label: str = ""
    unit: str = ""
    digits: int = 2
    bounds: tuple[float | None, float | None] = (None, None)
    height: int = 340
    levels: Mapping[str, tuple[float, Style]] = field(default_factory=dict)
    """horizontal dotted lines by name, such as published numbers"""

    def figure(self) -> str:
        """Return the figure: title, chart, description and numbers."""
        data = {
            "x": self.x,
            "series": [one.to_dict() for one in self.series],
            "xLabel": self.x_label,
            "yLabel": self.y_label,
            "unit": self.unit,
            "digits": self.digits,
            "bounds": self.bounds,
            "height": self.height,
            "levels": [
                {"label": name, "value": value, "light": style.light, "dark": style.dark}
                for name, (value, style) in self.levels.items()
            ],
        }
        return f"""<figure class="drawn">
<h3>{escape(self.title)}</h3>
<div class="chart" role="img" aria-label="{escape(f"{self.title}. {self.description}", quote=True)}">
<script type="application/json">{as_json(data)}</script></div>
<figcaption>{escape(self.description)}</figcaption>
<details class="numbers"><summary>The numbers</summary><div class="wide">{self._table()}</div></details>
</figure>
"""

    def _table(self) -> str:
        step = max(1, -(-len(self.x) // ROWS))
        shown = [i for i in range(len(self.x)) if i % step == 0 or i == len(self.x) - 1]
        heads = "".join(f'<th scope="col">{escape(one.label)}</th>' for one in self.series)
        rows = "".join(
            f'<tr><th scope="row">{_number(self.x[i])}</th>'
            + "".join(f"<td>{self._cell(one, i)}</td>" for one in self.series)
            + "</tr>"
            for i in shown
        )
        head = f'<th scope="col">{escape(self.x_label)}</th>'
        return f"<table><thead><tr>{head}{heads}</tr></thead><tbody>{rows}</tbody></table>"

    def _cell(self, series: Series, index: int) -> str:
        value = series.values[index]
        return "–" if value is None else f"{value:.{self.digits}f}{self.unit}"


def as_json(value: object) -> str:
    """Return JSON that can stand inside a script element: valid, without NaN, and without a tag that would end it."""
    return json.dumps(value, allow_nan=False).replace("</", "<\\/").replace("<!--", "<\\u0021--")


def over_seeds(
    curves: Sequence[Mapping[int, float]], label: str, style: Style, scale: float = 1.0
) -> tuple[list[int], Series]:
    """Return the rounds that all seeds have, and their mean with the range as a band."""
    rounds = [number for number in curves[0] if all(number in curve for curve in curves)]
    columns = [[scale * curve[number] for curve in curves] for number in rounds]
    mean = [statistics.fmean(column) for column in columns]
    if len(curves) == 1:
        return rounds, Series(label, mean, style)
    return rounds, Series(label, mean, style, [min(c) for c in columns], [max(c) for c in columns])


def on_common_axis(pairs: Sequence[tuple[list[int], Series]]) -> tuple[list[int], list[Series]]:
    """Return all rounds of several lines, and the lines with gaps where they have no number."""
    rounds = sorted({number for mine, _ in pairs for number in mine})
    placed = []
    for mine, one in pairs:
        where = {number: index for index, number in enumerate(mine)}

        def spread(values: Numbers | None, where: dict[int, int] = where) -> Numbers | None:
            return None if values is None else [values[where[n]] if n in where else None for n in rounds]

        placed.append(
            Series(one.label, spread(one.values) or [], one.style, spread(one.low), spread(one.high), one.points)
        )
    return rounds, placed


def term_styles(names: Sequence[str]) -> dict[str, Style]:
    """Return how the terms of a loss are drawn: they are no methods, and the total is a solid line."""
    rest = [style for style in STYLES if style.dash]
    total = Style("#1c2733", "#eef2f6", ())
    others = iter(rest * (1 + len(names) // len(rest)))
    return {name: total if name == "total" else next(others) for name in names}


def _number(value: int | float) -> str:
    return f"{value:g}" if float(value).is_integer() else f"{value:.3f}"
