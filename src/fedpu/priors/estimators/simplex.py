"""Shares that sum to one, or to at most one: projection on them, and quadratic programs over them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import cho_factor, cho_solve

_SLACK = 1e-9
_EXCHANGES, _STEPS = 60, 1000


def project(point: Float[np.ndarray, " k"], *, at_most: bool = False) -> Float[np.ndarray, " k"]:
    """Return the nearest point (Euclidean) of {θ ≥ 0, Σθ = 1}, or of {θ ≥ 0, Σθ ≤ 1} when ``at_most``."""
    positive: Float[np.ndarray, " k"] = np.maximum(point, 0)
    if at_most and positive.sum() <= 1:
        return positive
    ordered = np.sort(point)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(point) + 1)
    nearest: Float[np.ndarray, " k"] = np.maximum(point - excess[np.flatnonzero(ordered > excess)[-1]], 0)
    return nearest


def quadratic(
    square: Float[np.ndarray, "k k"], side: Float[np.ndarray, " k"], *, at_most: bool = False
) -> Float[np.ndarray, " k"]:
    """Return the θ ≥ 0 with Σθ = 1, or Σθ ≤ 1 when ``at_most``, that minimises ½ θᵀ square θ − sideᵀθ.

    ``square`` is positive semi-definite; a grain of the identity picks one of several minima.
    """
    scale = max(float(np.abs(square).max()), float(np.abs(side).max()), 1e-300)
    count = len(side) + at_most  # what is missing to one is a share of its own, without a price
    padded, right = np.zeros((count, count)), np.zeros(count)
    padded[: len(side), : len(side)], right[: len(side)] = square / scale, side / scale
    return solve(padded + 1e-10 * np.eye(count), right, np.ones(count, dtype=bool))[: len(side)]


def nearest_mixture(
    kernel: Float[np.ndarray, "n n"], point: Float[np.ndarray, " n"], free: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return the v ≥ 0 with Σv = 1 that minimises (point − v)ᵀ kernel (point − v); ``free`` as in :func:`solve`."""
    return solve(kernel, kernel @ point, free)


def solve(
    kernel: Float[np.ndarray, "n n"], side: Float[np.ndarray, " n"], free: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Return the v ≥ 0 with Σv = 1 that minimises ½ vᵀ kernel v − sideᵀv, for a positive definite kernel.

    Block principal pivoting (Júdice & Pires 1994) on the optimality conditions: guess which v are not zero, solve, and
    exchange all that have the wrong sign. ``free`` is the first guess. Where that goes round in circles, as it may when
    the kernel has few directions that matter, accelerated projected gradient descent goes on from there.
    """
    for _ in range(_EXCHANGES):
        shares, multiplier = nearest_on_face(kernel, side, free)
        slack = kernel[:, free] @ shares[free] - side + multiplier
        wrong = np.where(free, shares < -_SLACK, slack < -_SLACK)
        if not wrong.any():
            found: Float[np.ndarray, " n"] = np.maximum(shares, 0)
            return found
        free = free ^ wrong
        if not free.any():
            free[side.argmax()] = True
    return _descend(kernel, side, project(shares))


def _descend(
    kernel: Float[np.ndarray, "n n"], side: Float[np.ndarray, " n"], start: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    curvature = float(np.abs(kernel).sum(axis=1).max())
    current = ahead = start
    momentum = 1.0
    for _ in range(_STEPS):
        new = project(ahead - (kernel @ ahead - side) / curvature)
        if (ahead - new) @ (new - current) > 0:  # the momentum points uphill (O'Donoghue & Candès 2015)
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / grown * (new - current)
        moved, current, momentum = np.abs(new - current).max(), new, grown
        if moved <= 1e-10:
            break
    return current


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
