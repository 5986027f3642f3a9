"""Bounds for people: each client's, beside those of full supervision and beside the paper's claims."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fedpu.errors import ConfigError
from fedpu.report.picture import SHOWN
from fedpu.report.plot import METHOD_COLOURS, save_figure, style
from fedpu.risk import Lent
from fedpu.theory import Counts, FederationBound, possible, printed, scaled, theorem5


def bound_dict(known: Counts, result: FederationBound, delta: float) -> dict[str, Any]:
    """Return the bounds as plain values: of every client, of their sum and mean, and the ratios to full supervision."""
    summary, (clients, classes) = known.summary, known.summary.positive.shape
    parts, one, everyone = result.fedpu, result.clients, result.all
    supervised = result.supervised.together()
    rows = [
        {
            "client": k,
            "positive": summary.positive[k].nonzero()[:, 0].tolist(),
            "labelled": int(summary.labelled[k].sum()),
            "unlabelled": int(summary.unlabelled[k]),
            "complexity": float(one.complexity[k]),
            "labelled_deviation": float(parts.deviation[k, :-1].square().sum().sqrt()),
            "unlabelled_deviation": float(parts.deviation[k, -1]),
            "bound": float(one.total[k]),
            "supervised": float(result.supervised.total[k]),
            "ratio": _ratio(one.total[k], result.supervised.total[k]),
            "printed_ratio": _ratio(result.printed[k], result.printed_supervised[k]),
        }
        for k in range(clients)
    ]
    total = {
        "labelled": int(summary.labelled.sum()),
        "unlabelled": int(summary.unlabelled.sum()),
        "complexity": float(everyone.complexity),
        "labelled_deviation": float(parts.deviation[:, :-1].square().sum().sqrt()),
        "unlabelled_deviation": float(parts.deviation[:, -1].square().sum().sqrt()),
        "bound": float(everyone.total),
        "supervised": float(supervised.total),
        "ratio": _ratio(everyone.total, supervised.total),
        "printed_ratio": _ratio(result.printed.sum(), result.printed_supervised.sum()),
    }
    pooled = {
        "supervised": float(result.pooled.total),
        "ratio": _ratio(everyone.total, result.pooled.total),
        "ratio_of_mean": _ratio(everyone.total / clients, result.pooled.total),
        "printed_ratio": _ratio(result.printed.sum(), result.printed_pooled),
    }
    return {
        "delta": delta,
        "v": result.v,
        "scenario": summary.scenario,
        "clients": rows,
        "sum": total,
        "mean": {"bound": float(everyone.total) / clients, "supervised": float(supervised.total) / clients},
        "pooled": pooled,
        "claimed": {
            "clients": printed.ratio_to_clients(classes),
            "pooled": printed.ratio_to_pooled(classes, clients),
        },
    }


def bound_table(values: dict[str, Any]) -> Table:
    """Return the bounds of the clients, of their sum and of their mean for a terminal."""
    table = Table(
        title=f"With probability {1 - values['delta']:g}: expected risk − empirical risk ≤ bound",
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    parts = {"V part": "complexity"} if values["v"] else {}
    parts |= {"P part": "labelled_deviation", "U part": "unlabelled_deviation"}
    parts |= {"bound": "bound", "supervised": "supervised"}
    for name in ("client", "positive", "labelled", "unlabelled", *parts, "ratio"):
        table.add_column(name, justify="left" if name == "positive" else "right", no_wrap=True)

    def add(first: str, positive: str, row: dict[str, Any], share: float = 1.0, style: str = "") -> None:
        counts = (f"{row[key] * share:,.0f}" for key in ("labelled", "unlabelled"))
        numbers = (_number(row[key] * share) for key in parts.values())
        table.add_row(first, positive, *counts, *numbers, _times(row["ratio"]), style=style)

    clients = len(values["clients"])
    for row in values["clients"][:SHOWN]:
        add(str(row["client"]), _short(row["positive"]), row)
    if clients > SHOWN:
        table.add_row("…", f"{clients - SHOWN} more")
    table.add_row()
    add("sum", "", values["sum"], style="bold")
    add("mean", "", values["sum"], 1 / clients, style="bold")
    return table


def ratio_table(values: dict[str, Any]) -> Table:
    """Return the ratios to full supervision beside those that the paper claims."""
    table = Table(
        title="Times the bound of full supervision",
        title_justify="left",
        header_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 3, 0, 0),
    )
    for name in ("full supervision of", "this bound", "printed orders", "the paper's claim"):
        table.add_column(name, justify="left" if name == "full supervision of" else "right")
    total, pooled, claimed = values["sum"], values["pooled"], values["claimed"]
    each, one = f"C√C = {claimed['clients']:,.1f}×", f"CK√(CK) = {claimed['pooled']:,.1f}×"
    table.add_row("each client", _times(total["ratio"]), _times(total["printed_ratio"]), each)
    table.add_row("all data in one place", _times(pooled["ratio"]), _times(pooled["printed_ratio"]), one)
    table.add_row("the same, mean over clients", _times(pooled["ratio_of_mean"]))
    return table


def save_bound(known: Counts, lent: Lent, delta: float, vc: int, path: Path) -> None:
    """Draw the mean bound of a client against the labelled and the unlabelled counts."""
    if not known.summary.unlabelled.any():
        raise ConfigError("Nothing is unlabelled here, so there is no count to draw the bound against.")
    from matplotlib.ticker import LogLocator  # heavy to import, and most commands draw nothing

    figure, panels = style(10.0, 4.2, panels=2)
    clients = len(known.summary.positive)
    here = theorem5(known, lent, delta, vc)
    for axes, which in zip(panels, ("labelled", "unlabelled"), strict=True):
        other = "unlabelled" if which == "labelled" else "labelled"
        ways = [scaled(known, **{which: factor}) for factor in np.geomspace(0.01, 100, 81)]
        now = _mean_count(known, which)
        # Fewer labels or more unlabelled examples can always be had; the reverse only as far as the priors allow.
        ways = [way for way in ways if possible(way) or (_mean_count(way, which) < now) == (which == "labelled")]
        x = [_mean_count(way, which) for way in ways]
        bounds = [theorem5(way, lent, delta, vc) for way in ways]
        curves = {
            "FedPU": [float(b.all.total) for b in bounds],
            "its labelled part": [_part(b, slice(None, -1)) for b in bounds],
            "its unlabelled part": [_part(b, slice(-1, None)) for b in bounds],
            "fully supervised": [float(b.supervised.together().total) for b in bounds],
        }
        looks = [("-", 0), ("--", 0), ("--", 2), ("-", 1)]
        for (name, values), (line, colour) in zip(curves.items(), looks, strict=True):
            thick = 2.2 if line == "-" else 1.3
            axes.loglog(x, [v / clients for v in values], line, color=METHOD_COLOURS[colour], lw=thick, label=name)
        axes.plot(now, float(here.all.total) / clients, "o", color=METHOD_COLOURS[0], label="as configured")
        axes.set(xlabel=f"{which} examples per client")
        axes.set_title(f"with {_mean_count(known, other):,.0f} {other} examples per client", fontsize=10)
        for axis, form in ((axes.xaxis, "{x:,.0f}"), (axes.yaxis, "{x:g}")):
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
            axis.set_major_formatter(form)
            axis.set_minor_formatter("")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(f"bound of the clients' mean risk, δ = {delta:g}")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False, fontsize=9
    )
    save_figure(figure, path)


def _mean_count(known: Counts, which: str) -> float:
    return int(getattr(known.summary, which).sum()) / len(known.summary.positive)


def _part(result: FederationBound, groups: slice) -> float:
    part = result.fedpu._replace(
        complexity=result.fedpu.complexity[:, groups], deviation=result.fedpu.deviation[:, groups]
    )
    return float(part.together().together().total)


def _ratio(bound: Any, other: Any) -> float | None:
    ratio = float(bound) / float(other)
    return ratio if math.isfinite(ratio) else None


def _number(value: float) -> str:
    return f"{value:.4f}" if value < 10 else f"{value:,.2f}"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:,.2f}×"


def _short(classes: list[int]) -> str:
    return " ".join(map(str, classes)) if len(classes) < 5 else " ".join([*map(str, classes[:3]), "…"])
