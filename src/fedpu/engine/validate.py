"""Is an update from a machine that nobody can vouch for fit to be combined with others?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedpu.round import Broadcast, Tensors, Update

GROWTH = 1e6
"""how many times larger than the largest number that was sent (or than 1) a number of an update may be"""


class Expected(NamedTuple):
    """What a client returns besides its model, with the right names, shapes and types."""

    extras: Tensors
    shared: Tensors


def fault(
    update: Update,
    sent: Broadcast,
    expected: Expected,
    max_norm: float | None = None,
    examples: int | None = None,
) -> str | None:
    """Say what is wrong with a client's update of what the server sent, or nothing.

    Names, shapes and types must be those that were asked for, every value a finite number of a size that training can
    come to, ‖w_k − w_t‖ at most ``max_norm``, and n_k the number of ``examples`` that the client joined with.
    """
    if examples is not None and update.examples != examples:
        return f"it says that it has {update.examples} examples, and it joined with {examples}"
    pairs = (
        ("parameters", update.model, sent.model),
        ("extras", update.extras, expected.extras),
        ("shared tensors", update.shared, expected.shared),
    )
    for what, given, wanted in pairs:
        wrong = _unlike(what, given, wanted)
        if wrong is not None:
            return wrong
    if max_norm is not None:
        norm = distance(update.model, sent.model)
        if norm > max_norm:
            return f"its update has norm {norm:.3g}, more than engine.max_norm = {max_norm:g}"
    return next((wrong for _, given, wanted in pairs if (wrong := _too_large(given, wanted)) is not None), None)


def _too_large(given: Tensors, wanted: Tensors) -> str | None:
    """Find numbers so large that sums of them, or whatever is made of them, would not be numbers any more."""
    for name, value in sorted(wanted.items()):
        largest, limit = _largest(given[name]), GROWTH * max(1.0, _largest(value))
        if largest > limit:
            return f"'{name}' holds the number {largest:.3g}; at most {limit:.3g} is taken"
    return None


def _largest(values: Tensor) -> float:
    return float(values.double().abs().max()) if values.numel() else 0.0


def _unlike(what: str, given: Tensors, wanted: Tensors) -> str | None:
    if given.keys() != wanted.keys():
        wrong = sorted(given.keys() ^ wanted.keys())[0]
        return f"its {what} are not those that were asked for: '{wrong}' is in only one of them"
    for name, value in sorted(wanted.items()):
        own = given[name]
        if own.shape != value.shape or own.dtype != value.dtype:
            return (
                f"'{name}' has shape {tuple(own.shape)} of {own.dtype}; it should be {tuple(value.shape)} of "
                f"{value.dtype}"
            )
        if not bool(torch.isfinite(own).all()):
            return f"'{name}' holds values that are NaN or infinite"
    return None


def distance(update: Tensors, model: Tensors) -> float:
    """Return ‖w_k − w_t‖ over everything that is not a whole number; the same bits in whatever order names are."""
    squares = [
        (update[name].double() - value.double()).square().sum()
        for name, value in sorted(model.items())
        if value.is_floating_point()
    ]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
