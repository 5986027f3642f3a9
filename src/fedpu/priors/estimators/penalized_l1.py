"""Penalised L1 divergence (du Plessis, Niu & Sugiyama 2015; Machine Learning 106, 2017)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float, Int64
from pydantic import Field, PositiveFloat, PositiveInt

from fedpu.priors.estimators.base import Estimator, Matrix, Sample, Statistic, Vector
from fedpu.priors.estimators.features import distances_to_drawn, fold_numbers, median_square, reduced
from fedpu.priors.estimators.simplex import project, quadratic
from fedpu.randomness import numpy_generator


class PenalizedL1(Estimator):
    """Match Σ_i θ_i p_i(x) to p_U(x) from below: L1 divergence, with an infinite price on Σ_i θ_i p_i(x) > p_U(x).

    With r(x) = Σ_l α_l φ_l(x) − 1, α ≥ 0, Gaussian φ_l and an L2 penalty λ the supremum of the dual has a closed form:
    α_l = max(0, β_l) / λ, β_l = Σ_i θ_i E_i[φ_l] − E_U[φ_l], and

        penL1(θ) = Σ_l max(0, β_l)² / λ − Σ_i θ_i + 1.

    For each θ the width of φ and λ are cross-validated on the dual's held-out value, as in the paper, and the θ
    with the least penL1 is taken, of a grid. Several positive classes, where the paper has one, are matched jointly:
    penL1 is convex in θ, its minimisers over {θ ≥ 0, Σθ ≤ 1} at each width (and the least λ) say how the classes are to
    each other, and the grid is of their total.

    Centres of φ are drawn from the positives and U (the paper takes all), and none counts itself among the examples: in
    small samples it would be the only one that is near it. Features are reduced to principal
    components first (the paper: 4), for Gaussian kernels tell little in many dimensions.

    Bootstrap: the kernel means at the chosen width and λ are resampled, and the estimate is moved by as much as the
    minimiser at that width and λ moves.
    """

    name: Literal["penalized-l1"] = "penalized-l1"
    components: PositiveInt | None = Field(8, description="principal components that are kept; none: all features")
    centres: PositiveInt = Field(500, description="most centres of Gaussian functions")
    folds: int = Field(5, ge=2, description="of the cross-validation")
    widths: tuple[PositiveFloat, ...] = Field(
        tuple(float(w) for w in np.logspace(-2, 1, 10)), description="candidates, in medians of the distances"
    )
    penalties: tuple[PositiveFloat, ...] = Field(
        tuple(float(p) for p in np.logspace(-3, 1, 10)), description="candidates for λ"
    )
    grid: int = Field(101, ge=2, description="candidates for the total of θ between 0 and 1")

    def fit(self, sample: Sample, seed: int) -> Statistic:
        """Cross-validate, and return the estimate as a function of the examples' weights."""
        sample = reduced(sample, self.components)
        rng = numpy_generator(seed, "penalized-l1")
        groups = [*sample.positives, sample.unlabelled]
        squares = distances_to_drawn(groups, self.centres, rng)
        folds = [fold_numbers(len(group), self.folds, rng) for group in groups]
        median = float(np.sqrt(median_square(squares[-1])))
        means, held_out, trained = zip(
            *(_fold_means([_gauss(d, w * median) for d in squares], folds, self.folds) for w in self.widths),
            strict=True,
        )
        estimate, width, penalty = self._choose(list(means), list(held_out), list(trained))
        kernels = [_gauss(d, self.widths[width] * median) for d in squares]
        before = joint_minimiser(means[width][:-1], means[width][-1], penalty)

        def statistic(positives: list[Vector], unlabelled: Vector) -> Vector:
            new = np.stack([w @ k for w, k in zip([*positives, unlabelled], kernels, strict=True)])
            moved = estimate + joint_minimiser(new[:-1], new[-1], penalty) - before
            return sample.full(project(moved, at_most=True))

        return statistic

    def _choose(
        self,
        means: list[Matrix],
        held_out: list[Float[np.ndarray, "f k1 b"]],
        trained: list[Float[np.ndarray, "f k1 b"]],
    ) -> tuple[Vector, int, float]:
        """Return the θ of least penL1, each θ at its cross-validated width and λ, and those of that θ."""
        penalties = np.array(self.penalties)
        thetas = self._candidates(means)
        values = np.stack([_held_out_value(thetas, test, train) for test, train in zip(held_out, trained, strict=True)])
        scores = values[:, None] / penalties[:, None]
        width, at = np.unravel_index(scores.reshape(-1, len(thetas)).argmax(axis=0), scores.shape[:2])
        excess = np.stack([(np.maximum(beta(thetas, m), 0) ** 2).sum(axis=1) for m in means])
        divergence = excess[width, np.arange(len(thetas))] / penalties[at] - thetas.sum(axis=1) + 1
        best = int(divergence.argmin())
        return thetas[best], int(width[best]), float(penalties[at[best]])

    def _candidates(self, means: list[Matrix]) -> Float[np.ndarray, "m k"]:
        totals = np.linspace(0, 1, self.grid)
        if len(means[0]) == 2:
            return totals[:, None]
        found = np.array([joint_minimiser(m[:-1], m[-1], min(self.penalties)) for m in means])
        directions = np.unique(np.round(found / np.maximum(found.sum(axis=1, keepdims=True), 1e-9), 3), axis=0)
        candidates: Matrix = np.concatenate([totals[:, None] * direction for direction in directions])
        return candidates


def beta(thetas: Float[np.ndarray, "m k"], means: Float[np.ndarray, "k1 b"]) -> Float[np.ndarray, "m b"]:
    """Return β_l = Σ_i θ_i E_i[φ_l] − E_U[φ_l]; the last row of ``means`` is that of U."""
    values: Matrix = thetas @ means[:-1] - means[-1]
    return values


def joint_minimiser(
    positives: Float[np.ndarray, "k b"], unlabelled: Float[np.ndarray, " b"], penalty: float
) -> Float[np.ndarray, " k"]:
    """Return the θ of {θ ≥ 0, Σθ ≤ 1} that minimises Σ_l max(0, β_l)² / λ − Σ_i θ_i.

    Newton's method: the terms with β_l > 0 make a quadratic program; halfway back as often as it does not descend.
    """

    def value(theta: Vector) -> float:
        return float((np.maximum(theta @ positives - unlabelled, 0) ** 2).sum() / penalty - theta.sum())

    theta = np.zeros(len(positives))
    for _ in range(100):
        active = positives[:, theta @ positives > unlabelled]
        side = active @ unlabelled[theta @ positives > unlabelled] + penalty / 2
        direction = quadratic(active @ active.T, side, at_most=True) - theta
        step = 1.0
        while value(theta + step * direction) > value(theta) and step > 1e-9:
            step /= 2
        gain = value(theta) - value(theta + step * direction)
        if gain <= 1e-13:
            break
        theta = theta + step * direction
    return theta


def _held_out_value(
    thetas: Float[np.ndarray, "m k"], held_out: Float[np.ndarray, "f k1 b"], trained: Float[np.ndarray, "f k1 b"]
) -> Float[np.ndarray, " m"]:
    """Return the mean over the folds of λ αᵀβ, with α from the other folds and β from the fold itself."""
    each = [
        (np.maximum(beta(thetas, train), 0) * beta(thetas, test)).sum(axis=1)
        for test, train in zip(held_out, trained, strict=True)
    ]
    mean: Vector = np.mean(each, axis=0)
    return mean


def _fold_means(
    kernels: list[Matrix], folds: list[Int64[np.ndarray, " _"]], count: int
) -> tuple[Float[np.ndarray, "k1 b"], Float[np.ndarray, "f k1 b"], Float[np.ndarray, "f k1 b"]]:
    """Return the means of each group's rows: all, those of each fold, and those of the others."""
    member = [np.eye(count)[fold] for fold in folds]
    sums = np.stack([m.T @ kernel for m, kernel in zip(member, kernels, strict=True)], axis=1)
    sizes = np.stack([m.sum(axis=0) for m in member], axis=1)[..., None]
    total, number = sums.sum(axis=0), sizes.sum(axis=0)
    return total / number, sums / sizes, (total - sums) / (number - sizes)


def _gauss(squares: Matrix, width: float) -> Matrix:
    values: Matrix = np.exp(-squares / (2 * width**2))
    return values
