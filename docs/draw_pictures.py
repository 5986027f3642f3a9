"""Draw what one client sees, for docs/pictures.md: python docs/draw_pictures.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpu.report.plot import METHOD_COLOURS, save_figure, style

CENTRES = ((-1.6, 0.0), (1.2, 1.3), (1.4, -1.4))
NAMES = ("its positive class", "a negative class", "another negative class")
MARKS = ("o", "s", "^")


def main() -> None:
    """Draw the picture beside this file."""
    rng = np.random.default_rng(0)
    classes = [rng.normal(centre, 0.62, (60, 2)) for centre in CENTRES]
    figure, (truth, known) = style(9.0, 3.9, panels=2)
    for points, name, mark, colour in zip(classes, NAMES, MARKS, METHOD_COLOURS, strict=False):
        truth.scatter(*points.T, s=22, marker=mark, color=colour, label=name)
    labelled, rest = classes[0][:20], np.concatenate([classes[0][20:], *classes[1:]])
    known.scatter(*rest.T, s=22, marker="o", facecolors="none", edgecolors="0.55", label="unlabelled")
    known.scatter(*labelled.T, s=26, marker="o", color=METHOD_COLOURS[0], label="labelled")
    for axes, title in ((truth, "the truth"), (known, "what the client knows")):
        axes.set_title(title, fontsize=11)
        axes.set(xticks=[], yticks=[], xlim=(-3.6, 3.4), ylim=(-4.2, 3.2))
        axes.legend(loc="lower left", fontsize=8, frameon=False, ncols=3 if axes is truth else 2)
    save_figure(figure, Path(__file__).with_name("client-view.svg"))


if __name__ == "__main__":
    main()
