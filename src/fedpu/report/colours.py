"""Which colour and which stroke a method has, in every picture: the one place that decides it.

A built-in method has the colour of its place in the registry, whatever it is compared with. The colours differ in
lightness, too, and every method has a stroke of its own, so that pictures can be read without colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedpu.method import METHODS


class Style(NamedTuple):
    """How a line is drawn: its colour on a light and on a dark page, and the lengths of its dashes and gaps."""

    light: str
    dark: str
    dash: tuple[float, ...]

    @property
    def stroke(self) -> str:
        """The nearest of the strokes that a border can have."""
        if not self.dash:
            return "solid"
        return "dotted" if self.dash[0] <= 3 else "dashed"


STYLES = (
    Style("#1b7f5c", "#4cc38a", ()),
    Style("#c8553d", "#ff9478", (9, 4)),
    Style("#9a7000", "#e8bf48", (3, 3)),
    Style("#2d4a7c", "#9dbcf2", (14, 4)),
    Style("#7a4fa3", "#c3a2ea", (9, 4, 3, 4)),
    Style("#007fae", "#56c6f2", (6, 2)),
    Style("#b0307a", "#f58ac6", (2, 2)),
    Style("#5b6573", "#b4bdc9", (14, 3, 3, 3)),
)
"""of the registry's methods in its order, then of whatever else stands in a picture"""


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Return how each method of a picture is drawn; ``"name+key=value"`` is a variant of a method.

    A method has its own colour. Its first variant has it, too, where the plain method is not in the picture; other
    variants and users' methods take the colours that are left, in their order.
    """
    wanted = list(dict.fromkeys(names))
    fixed = {name: _nth(STYLES, index) for index, (name, _) in enumerate(METHODS.items())}
    chosen: dict[str, Style] = {name: fixed[name] for name in wanted if name in fixed}
    for name in wanted:
        own = fixed.get(name.partition("+")[0])
        if name not in chosen and own is not None and own not in chosen.values():
            chosen[name] = own
    free = [style for style in STYLES if style not in chosen.values()] or list(STYLES)
    left = [name for name in wanted if name not in chosen]
    chosen |= {name: _nth(free, index) for index, name in enumerate(left)}
    return {name: chosen[name] for name in wanted}


def _nth(free: Sequence[Style], index: int) -> Style:
    """Return a style that is free; once all are taken, the same colours again with other strokes."""
    again, place = divmod(index, len(free))
    own = free[place]
    return own._replace(dash=STYLES[(STYLES.index(own) + again) % len(STYLES)].dash)
