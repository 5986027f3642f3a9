"""Estimated class priors for people: one line per client, and a picture of estimates against the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from fedpu.applications.prior_estimates import ClientPriors, PriorEstimates
from fedpu.report.plot import COLOURS, METHOD_COLOURS, style

SHOWN = 30
"""clients in the terminal's table; the others are in the JSON"""


def priors_table(estimates: PriorEstimates) -> Table:
    """Return the estimates of each client's positive classes, and of all others together."""
    table = Table(
        title=f"Class priors by '{estimates.config.priors.estimator}' [{_bounds(estimates)}] (true share)",
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
    )
    for name in ("client", "its positive classes", "all others", "error"):
        table.add_column(name, justify="right" if name in ("client", "error") else "left")
    for client in estimates.clients[:SHOWN]:
        deviations = client.deviations()
        error = f"{np.mean(deviations):.4f}" if deviations else "–"
        table.add_row(str(client.client), _positive(client), _negative(client), error)
    notes = []
    if len(estimates.clients) > SHOWN:
        notes.append(f"… and {len(estimates.clients) - SHOWN} more clients; --json gives all.")
    if estimates.mean_absolute_error is not None:
        notes.append(
            f"Mean absolute error over all clients and classes: {estimates.mean_absolute_error:.4f}; of the guess that "
            f"classes are even in the unlabelled data: {estimates.guess_error:.4f}"
        )
    if notes:
        table.caption, table.caption_justify = "\n".join(notes), "left"
    return table


def _bounds(estimates: PriorEstimates) -> str:
    """Name the bounds for what they are: of a shrunk estimate what is left open, else the spread of a sample."""
    return f"{estimates.level:.0%} {'range' if estimates.config.priors.shrink else 'bootstrap of the sample'}"


def _positive(client: ClientPriors) -> str:
    if client.estimate is None or client.lower is None or client.upper is None:
        return client.error or "–"
    lines = []
    for c in client.positive:
        truth = "" if client.truth is None else f" ({client.truth[c]:.3f})"
        lines.append(f"{c}: {client.estimate[c]:.3f} [{client.lower[c]:.3f}, {client.upper[c]:.3f}]{truth}")
    return "\n".join(lines) or "–"


def _negative(client: ClientPriors) -> str:
    if client.negative is None:
        return "–"
    middle, low, high = client.negative
    truth = "" if client.true_negative is None else f" ({client.true_negative:.3f})"
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]{truth}"


def priors_figure(estimates: PriorEstimates) -> Any:
    """Return a picture: each class of each client as a point with its interval, against the true share if known."""
    figure, axes = style(6.2, 5.2)
    known = all(client.truth is not None for client in estimates.clients)
    for positive in (True, False):
        points = [
            (client.truth[c] if client.truth is not None else c, client.estimate[c], client.lower[c], client.upper[c])
            for client in estimates.clients
            if client.estimate is not None and client.lower is not None and client.upper is not None
            for c in range(len(client.estimate))
            if (c in client.positive) == positive and np.isfinite(client.estimate[c])
        ]
        if points:
            x, y, low, high = (np.array(column, dtype=float) for column in zip(*points, strict=True))
            bars = np.nan_to_num(np.maximum(np.stack([y - low, high - y]), 0))
            axes.errorbar(
                x,
                y,
                yerr=bars,
                fmt="o",
                markersize=4,
                linewidth=0.9,
                alpha=0.8,
                color=COLOURS["labelled"] if positive else METHOD_COLOURS[1],
                label="classes that the client labels" if positive else "classes that it does not label",
            )
    if known:
        axes.axline((0, 0), slope=1, color="#8896a5", linewidth=1, linestyle="--", zorder=0)
        axes.set(xlabel="true share of the class on the client", ylabel="estimated prior")
    else:
        axes.set(xlabel="class", ylabel="estimated prior")
    axes.legend(frameon=False, fontsize=9)
    axes.set_title(
        f"'{estimates.config.priors.estimator}' after {estimates.rounds} rounds, bars: {_bounds(estimates)}",
        fontsize=10,
    )
    return figure
