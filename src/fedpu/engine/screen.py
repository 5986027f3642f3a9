"""What becomes of the updates of clients that nobody can vouch for, before they are combined.

An update that is no number is left out. One that is much longer than most is cut to a length that most have nearly:
a single client can't carry the mean away, and an honest one that is far off still counts. Long or short is told by the
round itself, as a multiple of the median norm; a client with more examples than most has taken more steps, and may go
further in proportion. So that the median is known, a round's updates are held until the last of them is there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from fedpu.engine.validate import Expected, distance, fault
from fedpu.round import Broadcast, Tensors, Update


class Screen:
    """Looks at the updates of one round. ``bound`` is the multiple of the median norm that an update may have, 0: any;
    ``name`` says what the record calls a client.
    """

    def __init__(self, sent: Broadcast, bound: float, name: Callable[[int], str]) -> None:
        self.left_out: dict[str, str] = {}
        """whose update could not be used, and why"""
        self.cut: dict[str, str] = {}
        """whose update was cut, and why"""
        self._sent = sent
        self._bound = bound
        self._name = name

    def read(self, updates: Iterable[Update]) -> Iterator[Update]:
        """Yield the updates that can be used, none of them too long."""
        usable = (update for update in updates if self._is_usable(update))
        if not self._bound:
            yield from usable
            return
        held = list(usable)
        norms = [self._norms(update) for update in held]
        typical = {group: statistics.median(own[group] for own in norms) for group in GROUPS} if held else {}
        examples = statistics.median(update.examples for update in held) if held else 0
        for update, own in zip(held, norms, strict=True):
            room = self._bound * max(1.0, update.examples / max(examples, 1))
            yield self._shortened(update, own, {group: room * typical[group] for group in GROUPS})

    def _is_usable(self, update: Update) -> bool:
        # Its names and shapes are checked where it is unpacked; what is left to be seen is that it holds numbers.
        wrong = fault(update, self._sent, Expected(update.extras, update.shared))
        if wrong is not None:
            self.left_out[self._name(update.client)] = wrong
        return wrong is None

    def _norms(self, update: Update) -> dict[str, float]:
        sent = {"model": self._sent.model}
        return {group: distance(own, sent.get(group, _zeros(own))) for group, own in _groups(update).items()}

    def _shortened(self, update: Update, norms: dict[str, float], limits: dict[str, float]) -> Update:
        changed: dict[str, Tensors] = {}
        for group, own in _groups(update).items():
            norm, limit = norms[group], limits[group]
            if norm > limit > 0:
                start = self._sent.model if group == "model" else _zeros(own)
                changed[group] = _towards(own, start, limit / norm)
                what = "update" if group == "model" else f"'{group}'"
                self.cut[self._name(update.client)] = (
                    f"its {what} has norm {norm:.3g}; it was cut to {limit:.3g}, by aggregation.norm_bound = "
                    f"{self._bound:g} times the round's median"
                )
        return replace(
            update,
            model=changed.get("model", update.model),
            extras=changed.get("extras", update.extras),
            shared=changed.get("shared", update.shared),
        )


GROUPS = ("model", "extras", "shared")


def _groups(update: Update) -> dict[str, Tensors]:
    return {"model": update.model, "extras": update.extras, "shared": update.shared}


def _zeros(tensors: Tensors) -> Tensors:
    return {name: value.new_zeros(()).expand(value.shape) for name, value in tensors.items()}


def _towards(own: Tensors, start: Tensors, share: float) -> Tensors:
    """Return what lies a share of the way from ``start`` to ``own``; whole numbers stay."""
    return {
        name: (start[name].double() + share * (value.double() - start[name].double())).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in own.items()
    }
