"""The client × class picture: which classes each client has labelled, holds unlabelled, or has never seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from fedpu.labelling import Holdings
from fedpu.report.plot import COLOURS, save_figure, style

SHOWN = 40


def terminal_picture(held: Holdings, width: int = 80) -> Table:
    """Return the picture for a terminal of that width: counts where they fit, marks alone where they don't."""
    names = list(held.classes)
    counted = 8 + 10 + len(names) * (2 + len(str((held.labelled + held.unlabelled).max())) + 1)
    if counted + sum(max(0, len(name) - 4) for name in names) > width:
        names = [str(c) for c in range(len(names))]
    with_counts = counted <= width
    table = Table(
        title="client × class",
        header_style="bold",
        pad_edge=False,
        box=None,
        padding=(0, 2 if with_counts else 1, 0, 0),
    )
    table.add_column("client", justify="right", no_wrap=True, min_width=6)
    for name in names:
        table.add_column(Text(name), justify="right", no_wrap=True)
    if held.unknown.any():
        table.add_column("unknown", justify="right", style="blue", no_wrap=True)
    table.add_column("labelled", justify="right", style="bold", no_wrap=True, min_width=8)
    for client in range(min(len(held.labelled), SHOWN)):
        pairs = zip(held.labelled[client], held.unlabelled[client], strict=True)
        cells: list[Text | str] = [_cell(int(a), int(b), with_counts) for a, b in pairs]
        if held.unknown.any():
            cells.append(f"░{held.unknown[client]}")
        labelled = held.labelled[client].sum()
        total = labelled + held.unlabelled[client].sum() + held.unknown[client]
        table.add_row(str(client), *cells, f"{labelled}/{total}")
    if len(held.labelled) > SHOWN:
        table.caption = f"and {len(held.labelled) - SHOWN} more clients"
    return table


def _cell(labelled: int, unlabelled: int, with_count: bool) -> Text:
    if labelled:
        return Text(f"█{labelled}" if with_count else "█", style="bold green")
    if unlabelled:
        return Text(f"░{unlabelled}" if with_count else "░", style="blue")
    return Text("·", style="dim")


def save_picture(held: Holdings, path: Path) -> None:
    """Draw the picture to a PNG or SVG file: one square per class, its filled part labelled, its size the number."""
    clients, classes = held.labelled.shape
    shown = min(clients, 2 * SHOWN)
    total = (held.labelled + held.unlabelled)[:shown]
    side = 0.9 * np.sqrt(total / max(1, total.max()))
    figure, axes = style(1.6 + 0.55 * classes, 1.4 + 0.42 * shown)
    for client, cls in np.argwhere(total > 0):
        size = side[client, cls]
        left, low = cls - size / 2, client - size / 2
        axes.add_patch(_rectangle(left, low, size, size, COLOURS["unlabelled"]))
        part = held.labelled[client, cls] / total[client, cls]
        if part:
            axes.add_patch(_rectangle(left, low + size * (1 - part), size, size * part, COLOURS["labelled"]))
    for client, cls in np.argwhere(total == 0):
        axes.plot(cls, client, ".", color="0.75", markersize=3)
    axes.set(xlim=(-0.6, classes - 0.4), ylim=(shown - 0.4, -0.6), xlabel="class", ylabel="client", aspect="equal")
    axes.set_xticks(range(classes), held.classes, rotation=0 if max(map(len, held.classes)) < 4 else 60)
    axes.set_yticks(range(0, shown, max(1, shown // 20)))
    axes.set_title(
        f"labelled (dark) and unlabelled data of {'the first ' if shown < clients else ''}{shown} clients",
        fontsize=10,
    )
    save_figure(figure, path)


def _rectangle(left: float, low: float, width: float, height: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((left, low), width, height, facecolor=colour, linewidth=0)
