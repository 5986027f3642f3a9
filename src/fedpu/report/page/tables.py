"""Pictures that are tables: every cell has its number, and is filled as far as the number says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from fedpu.labelling import Holdings

Matrix = Sequence[Sequence[int | float]]
CLIENTS = 40
"""clients that are shown"""
TEST = "test examples"
"""what an accuracy is measured on"""
CLASSES = 30
"""classes up to which a confusion matrix can be read"""


def soft(text: str) -> str:
    """Return text that may be broken after hyphens, plus signs and the like."""
    broken = escape(text)
    for sign in ("-", "+", "=", "_", "."):
        broken = broken.replace(sign, f"{sign}<wbr>")
    return broken


def figure(title: str, description: str, table: str, kind: str = "") -> str:
    """Return a figure of a table."""
    return f"""<figure class="tabled {kind}">
<h3>{escape(title)}</h3>
<div class="wide" tabindex="0" role="group" aria-label="{escape(title, quote=True)}">{table}</div>
<figcaption>{escape(description)}</figcaption>
</figure>
"""


def holdings_figure(held: Holdings) -> str:
    """Return clients × classes: how many examples each has labelled, of how many."""
    clients = len(held.labelled)
    unknown = bool(held.unknown.any())
    heads = "".join(f'<th scope="col">{soft(name)}</th>' for name in held.classes)
    heads += '<th scope="col">class unknown</th>' * unknown + '<th scope="col">labelled</th>'
    rows = []
    for client in range(min(clients, CLIENTS)):
        labelled, hidden = held.labelled[client], held.unlabelled[client]
        cells = "".join(_held(int(a), int(b)) for a, b in zip(labelled, hidden, strict=True))
        total = int(labelled.sum() + hidden.sum() + held.unknown[client])
        if unknown:
            cells += _held(0, int(held.unknown[client]))
        cells += f'<td class="sum">{int(labelled.sum())}<small>/{total}</small></td>'
        rows.append(f'<tr><th scope="row">{client}</th>{cells}</tr>')
    more = f" The first {CLIENTS} of {clients:,} clients are shown." if clients > CLIENTS else ""
    table = (
        f'<table class="cells"><thead><tr><th scope="col">client</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    return figure(
        "Who labelled what",
        "One row per client, one column per class: labelled / all examples of the class. Filled: the client labels "
        "the class (how high, the labelled share); pale: it holds the class unlabelled; a dot: it has none. Training "
        f"does not see the classes of unlabelled examples.{more}",
        table,
        "holdings",
    )


def _held(labelled: int, unlabelled: int) -> str:
    total = labelled + unlabelled
    if not total:
        return '<td class="none">·</td>'
    if not labelled:
        return f'<td class="hidden"><small>0/{total}</small></td>'
    return f'<td class="bar" style="--s:{labelled / total:.3f}"><b>{labelled}</b><small>/{total}</small></td>'


def per_class_figure(
    classes: Sequence[str], labels: Sequence[str], accuracies: Sequence[Sequence[float | None]], seeds: int, of: str
) -> str:
    """Return classes × methods: the accuracy on each class."""
    heads = "".join(f'<th scope="col">{soft(label)}</th>' for label in labels)
    rows = []
    for index, name in enumerate(classes):
        cells = "".join(_share(values[index] if index < len(values) else None) for values in accuracies)
        rows.append(f'<tr><th scope="row">{soft(name)}</th>{cells}</tr>')
    table = (
        f'<table class="cells across"><thead><tr><th scope="col">class</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    mean = f", mean of {seeds} seeds" if seeds > 1 else ""
    return figure(
        "Accuracy on each class" if of == TEST else "Recall of each class",
        f"Share of the {of} of a class that are recognised, in per cent{mean}. Longer bars are better.",
        table,
        "classes",
    )


def _share(value: float | None) -> str:
    if value is None:
        return '<td class="none">–</td>'
    return f'<td class="level" style="--s:{value:.3f}">{100 * value:.1f}</td>'


def confusion_figure(label: str, classes: Sequence[str], counts: Matrix) -> str:
    """Return what was taken for what; with very many classes, the commonest mistakes alone."""
    title = f"What was taken for what: {label}"
    totals = [sum(row) for row in counts]
    if len(classes) > CLASSES:
        return figure(title, "The commonest mistakes, with many classes.", _mistakes(classes, counts, totals))
    heads = "".join(f'<th scope="col">{soft(name)}</th>' for name in classes)
    rows = []
    for i, (name, row) in enumerate(zip(classes, counts, strict=True)):
        cells = "".join(_confused(value, totals[i], i == j) for j, value in enumerate(row))
        rows.append(f'<tr><th scope="row">{soft(name)}</th>{cells}</tr>')
    table = (
        f'<table class="cells"><thead><tr><th scope="col">true<small> ╲ said</small></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
    description = (
        "One row per true class, one column per answer, in per cent of the row; framed: the right answer. The stronger "
        "the colour, the more often. Empty: below half a per cent."
    )
    return figure(title, description, table, "confusion")


def confusion_width(classes: Sequence[str]) -> float:
    """Return how wide the figure must be, in letters of the page (rem), so that nobody has to scroll in it."""
    words = [max(map(len, re.split(r"[-+=_.\s]", name)), default=1) for name in classes] or [1]
    if len(classes) > CLASSES:
        return 28.0
    columns = sum(max(2.25, 0.5 * word + 0.95) for word in words)
    return columns + max(5.5, 0.5 * max(words) + 1) + 2.5


def _confused(value: int | float, total: int | float, right: bool) -> str:
    share = value / total if total else 0.0
    kinds = ("right " if right else "") + ("deep" if share > 0.5 else "")
    text = f"{100 * share:.0f}" if share >= 0.005 else ""
    return f'<td class="shade {kinds}" style="--s:{share:.3f}">{text}</td>'


def _mistakes(classes: Sequence[str], counts: Matrix, totals: Sequence[int | float]) -> str:
    wrong = [
        (value / totals[i], name, classes[j])
        for i, (name, row) in enumerate(zip(classes, counts, strict=True))
        for j, value in enumerate(row)
        if i != j and value
    ]
    rows = "".join(
        f"<tr><td>{soft(true)}</td><td>{soft(said)}</td><td>{100 * share:.1f}</td></tr>"
        for share, true, said in sorted(wrong, reverse=True)[:20]
    )
    heads = "".join(f'<th scope="col">{text}</th>' for text in ("true class", "taken for", "per cent of the class"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
