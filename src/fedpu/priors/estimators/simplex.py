"""Shares that sum to one, or to at most one: projection on them, and minimising a convex function over them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_factor, cho_solve


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


def nearest_mixture(
    kernel: Float[np.ndarray, "n n"], point: Float[np.ndarray, " n"], free: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return the v ≥ 0 with Σv = 1 that minimises (point − v)ᵀ kernel (point − v), for a positive definite kernel.

    Block principal pivoting (Júdice & Pires 1994) on the optimality conditions: guess which v are not zero, solve, and
    exchange all that have the wrong sign; when that stops helping, the last of them alone. ``free`` is the first guess.
    """
    side = kernel @ point
    fewest, chances = len(point) + 1, 3
    for _ in range(20 * len(point)):
        shares, multiplier = nearest_on_face(kernel, side, free)
        slack = kernel[:, free] @ shares[free] - side + multiplier
        wrong = np.where(free, shares < -1e-12, slack < -1e-10)
        count = int(wrong.sum())
        if count == 0:
            break
        chances = 3 if count < fewest else chances - 1
        fewest = min(fewest, count)
        if chances < 0:
            wrong[np.flatnonzero(wrong)[:-1]] = False
        free = free ^ wrong
        if not free.any():
            free[side.argmax()] = True
    found: Float[np.ndarray, " n"] = np.maximum(shares, 0)
    return found


def nearest_on_face(
    kernel: Float[np.ndarray, "n n"], side: Float[np.ndarray, " n"], free: Bool[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], float]:
    """Return the v with Σv = 1 and zeros outside ``free`` that minimises ½ vᵀ kernel v − sideᵀv, and its multiplier."""
    inside = np.flatnonzero(free)
    factor = cho_factor(kernel[np.ix_(inside, inside)], check_finite=False)
    plain, ones = cho_solve(factor, np.stack([side[inside], np.ones(len(inside))], axis=1), check_finite=False).T
    multiplier = float((plain.sum() - 1) / ones.sum())
    shares = np.zeros(len(side))
    shares[inside] = plain - multiplier * ones
    return shares, multiplier
