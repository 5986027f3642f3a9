"""Is an update from a machine that nobody can vouch for fit to be averaged?"""

from __future__ import annotations

import torch

from fedpu.engine.base import ModelState


def fault(update: ModelState, model: ModelState, max_norm: float | None = None) -> str | None:
    """Say what is wrong with a client's ``update`` of the global ``model``, or nothing.

    Names, shapes and types must be the model's, every value a finite number, and ‖w_k − w_t‖ at most ``max_norm``.
    """
    if update.keys() != model.keys():
        wrong = sorted(update.keys() ^ model.keys())[0]
        return f"its parameters are not the model's: '{wrong}' is in only one of them"
    for name, value in model.items():
        given = update[name]
        if given.shape != value.shape or given.dtype != value.dtype:
            return (
                f"'{name}' has shape {tuple(given.shape)} of {given.dtype}; the model's is {tuple(value.shape)} of "
                f"{value.dtype}"
            )
        if not bool(torch.isfinite(given).all()):
            return f"'{name}' holds values that are NaN or infinite"
    if max_norm is not None:
        norm = distance(update, model)
        if norm > max_norm:
            return f"its update has norm {norm:.3g}, more than engine.max_norm = {max_norm:g}"
    return None


def distance(update: ModelState, model: ModelState) -> float:
    """Return ‖w_k − w_t‖ over everything that is not a whole number."""
    squares = [
        (update[name].double() - value.double()).square().sum()
        for name, value in model.items()
        if value.is_floating_point()
    ]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
