"""What all pictures in files share: size, colours, and saving without a display. They are drawn by matplotlib, which is
an extra: the report's page does without it.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedpu.errors import FedpuError
from fedpu.record import telling_disk_errors
from fedpu.report.colours import STYLES, Style

COLOURS = {"labelled": "#1b7f5c", "unlabelled": "#bcd3ea"}
METHOD_COLOURS = [one.light for one in STYLES]
FORMATS = (".png", ".svg", ".pdf")


def can_draw() -> bool:
    """Is matplotlib installed?"""
    return find_spec("matplotlib") is not None


def check_picture(path: Path) -> None:
    """Refuse a picture that can't be drawn, before the work whose outcome it shows."""
    if path.suffix.lower() not in FORMATS:
        raise FedpuError(f"'{path}' can't be drawn: the name must end in {', '.join(FORMATS)}.")
    if not can_draw():
        raise FedpuError(f"To draw {path}, install matplotlib: pip install 'fedpu[pictures]'.")


def style(width: float, height: float, panels: int = 1, sharey: bool = True) -> tuple[Any, Any]:
    """Return a figure and its axes, or several side by side, plain, without the machinery of interactive windows."""
    from matplotlib.figure import Figure  # heavy to import, and most commands draw nothing

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(1, panels, sharey=sharey)
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def line_style(drawn: Style) -> Any:
    """Return the stroke of a method, whose dashes are given in pixels of a line two pixels wide."""
    return (0, tuple(length / 2 for length in drawn.dash)) if drawn.dash else "solid"


def panels(count: int, across: int = 3) -> tuple[Any, list[Any]]:
    """Return a figure of ``count`` small axes, a few in a row."""
    from matplotlib.figure import Figure

    down = -(-count // across)
    figure = Figure(figsize=(3.6 * min(count, across), 2.7 * down + 0.4), layout="constrained")
    grid = figure.subplots(down, min(count, across), squeeze=False).flat
    axes = list(grid)
    for place in axes:
        place.spines[["top", "right"]].set_visible(False)
        place.tick_params(labelsize=8)
    for place in axes[count:]:
        place.set_visible(False)
    return figure, axes[:count]


def save_figure(figure: Any, path: Path) -> None:
    """Save to a PNG, SVG or PDF file, by its ending."""
    check_picture(path)
    with telling_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".svg":
            path.write_text(_svg(figure), encoding="utf-8")
        else:
            figure.savefig(path, dpi=150)


def _svg(figure: Any) -> str:
    """Return an SVG file's text, the same one for the same figure: no date, and ids that follow from what is drawn."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "fedpu"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
