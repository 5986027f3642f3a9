"""Shares that sum to one, or to at most one: projection on them, and minimising a convex function over them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def project(point: Float[np.ndarray, " k"], *, at_most: bool = False) -> Float[np.ndarray, " k"]:
    """Return the nearest point (Euclidean) of {θ ≥ 0, Σθ = 1}, or of {θ ≥ 0, Σθ ≤ 1} when ``at_most``."""
    positive: Float[np.ndarray, " k"] = np.maximum(point, 0)
    if at_most and positive.sum() <= 1:
        return positive
    ordered = np.sort(point)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(point) + 1)
    nearest: Float[np.ndarray, " k"] = np.maximum(point - excess[np.flatnonzero(ordered > excess)[-1]], 0)
    return nearest


def minimise(
    gradient: Callable[[Float[np.ndarray, " k"]], Float[np.ndarray, " k"]],
    curvature: float,
    start: Float[np.ndarray, " k"],
    *,
    at_most: bool = False,
    tolerance: float = 1e-10,
    steps: int = 5000,
) -> Float[np.ndarray, " k"]:
    """Minimise a smooth convex function over shares by accelerated projected gradient descent with restarts.

    ``curvature`` bounds the largest eigenvalue of its Hessian. It stops when no share moves by more than ``tolerance``.
    """
    current = ahead = project(start, at_most=at_most)
    momentum = 1.0
    for _ in range(steps):
        new = project(ahead - gradient(ahead) / curvature, at_most=at_most)
        if (ahead - new) @ (new - current) > 0:  # the momentum points uphill (O'Donoghue & Candès 2015)
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / grown * (new - current)
        moved, current, momentum = np.abs(new - current).max(), new, grown
        if moved <= tolerance:
            break
    return current
