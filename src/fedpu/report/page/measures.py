"""What was measured of a model class by class, and what partly labelled data can say where nobody knows the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from fedpu.report.page.shell import details
from fedpu.report.page.tables import CLIENTS, figure, soft

Told = Mapping[str, Any]
MEASURES = {
    "examples": "examples",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "calibration_error": "calibration error",
}
"""what the record has of each class, and what it is called here"""


def measures_details(label: str, measures: Told) -> str:
    """Return the measures of a model, folded away: one row per class."""
    rows = [[one["class"], *(_number(one.get(key)) for key in MEASURES)] for one in measures.get("classes") or []]
    if not rows:
        return ""
    overall = {
        "macro F1": measures.get("macro_f1"),
        "expected calibration error": measures.get("calibration_error"),
        "Brier score": measures.get("brier"),
    }
    told = ", ".join(f"{name} {_number(value)}" for name, value in overall.items() if value is not None)
    table, name = _table(["class", *MEASURES.values()], rows), f"Measures of {escape(label, quote=True)}"
    return details(
        f"Precision, recall, F1 and calibration of each class: {label}",
        f'<div class="wide" tabindex="0" role="group" aria-label="{name}">{table}</div>'
        f'<p class="soft">All classes: {escape(told)}.</p>',
    )


def estimates_figure(label: str, estimates: Told) -> str:
    """Return what can be known of a model where only some examples are labelled."""
    rows = [
        [
            one["class"],
            _per_cent(one.get("recall")),
            _interval(one.get("recall_interval")),
            _per_cent(one.get("share")),
            _per_cent(one.get("predicted_share")),
            _per_cent(one.get("precision")),
        ]
        for one in estimates.get("classes") or []
    ]
    if not rows:
        return ""
    heads = ["class", "recall (%)", "interval of 95 %", "class share (%)", "predicted share (%)", "precision (%)"]
    shares = estimates.get("priors")
    accuracy = estimates.get("accuracy")
    told = f"Estimated accuracy {_per_cent(accuracy)} %, from {shares} class shares. " if accuracy is not None else ""
    return figure(
        f"What partly labelled data can say: {label}",
        f"{told}All of it assumes that {estimates.get('assumes', 'labels were given at random')}. Recall is that of "
        "the labelled examples set aside; precision follows from it, the class share and the predicted share.",
        _table(heads, rows),
        "estimates",
    )


def estimated_priors_figure(label: str, classes: Sequence[str], values: Sequence[Sequence[float]]) -> str:
    """Return what clients take their class shares to be, where nobody knows the truth."""
    rows = [[str(client), *(_per_cent(value) for value in shares)] for client, shares in enumerate(values[:CLIENTS])]
    more = f" The first {CLIENTS} of {len(values):,} clients are shown." if len(values) > CLIENTS else ""
    return figure(
        f"Class priors that clients estimated: {label}",
        f"In per cent, after the last round. Nobody knows the true shares of these data.{more}",
        _table(["client", *classes], rows),
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        f'<tr><th scope="row">{soft(str(row[0]))}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _number(value: float | int | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _per_cent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _interval(value: Sequence[float] | None) -> str:
    return "–" if value is None else f"{100 * value[0]:.1f} … {100 * value[1]:.1f}"
