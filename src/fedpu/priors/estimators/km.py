"""Kernel mean embedding (Ramaswamy, Scott & Tewari 2016): KM1 and KM2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field, PositiveFloat, PositiveInt

from fedpu.priors.estimators.base import Estimator, Matrix, Sample, Statistic, Vector, class_by_class
from fedpu.priors.estimators.features import median_square, reduced, squared_distances
from fedpu.priors.estimators.simplex import nearest_mixture, nearest_on_face
from fedpu.randomness import numpy_generator

_RIDGE = 1e-3
_START = 1.05


class Km(Estimator):
    """The largest share of the positives that can be taken out of U with a distribution left over.

    d(λ) is the distance, in the kernel's space, from λ φ(U) + (1 − λ) φ(P) to the convex hull of all examples; up to
    λ = 1/(1 − θ) what is left of U is a mixture of examples and d is flat, then it rises. θ = 1 − 1/λ is where the
    slope first exceeds ν: ``km1`` ν = 1/√min(n_P, n_U), ``km2`` ν = 0.8 · the slope at the start + 0.2 · the slope at
    infinity, ‖φ(U) − φ(P)‖. d is convex: bisection finds it, in θ. The slope is the exact derivative at the solution of
    the quadratic program, where the paper takes a difference quotient.

    Where P and U are so alike that even the slope at infinity hardly reaches km1's ν, km2's is taken, as the authors'
    code does. The Gaussian kernel's width is, of five, the one with the largest distance between P and U, of those with
    a slope below ν at the start; the estimate of that distance leaves out an example's distance to itself, for with it
    the smallest width wins whenever P and U are much alike.

    Several positive classes: one at a time against U, and the nearest point with Σθ ≤ 1. Larger samples are cut to
    ``points`` examples, drawn at random.

    Bootstrap: width, ν, the drawn examples and which of them the nearest mixture is made of stay; their weights are
    resampled, and the change of slope at the estimate is turned into one of θ by one secant step.
    """

    name: Literal["km"] = "km"
    variant: Literal["km1", "km2"] = Field("km1", description="the threshold on the slope")
    components: PositiveInt | None = Field(None, description="principal components that are kept; none: all features")
    points: PositiveInt = Field(600, description="most examples of the class, and of U, in the quadratic program")
    widths: tuple[PositiveFloat, ...] = Field(
        tuple(float(w) for w in np.logspace(-1, 1, 5)), description="candidates, in medians of the distances"
    )
    largest: float = Field(0.98, gt=0, lt=1, description="largest prior that is looked for")
    precision: float = Field(0.002, gt=0, lt=0.5, description="of the bisection")

    def fit(self, sample: Sample, seed: int) -> Statistic:
        """Find the estimate of each class, and return it as a function of the examples' weights."""
        sample = reduced(sample, self.components)
        rngs = [numpy_generator(seed, "km", c) for c in sample.labelled]
        return class_by_class(
            sample,
            [self._one(p, sample.unlabelled, rng) for p, rng in zip(sample.positives, rngs, strict=True)],
        )

    def _one(
        self, positives: Matrix, unlabelled: Matrix, rng: np.random.Generator
    ) -> Callable[[Vector, Vector], float]:
        p, u = (rng.permutation(len(array))[: self.points] for array in (positives, unlabelled))
        even, threshold, free = self._curve(positives[p], unlabelled[u])
        low, high = 0.0, self.largest
        while high - low > self.precision:
            middle = (low + high) / 2
            _, slope, free = even.at(middle, free)
            low, high = (low, middle) if slope > threshold else (middle, high)
        estimate = (low + high) / 2
        _, slope, free = even.at(estimate, free)
        step = min(0.02, estimate / 2, (1 - estimate) / 2)
        rise = (even.at(estimate + step, free)[1] - even.at(estimate - step, free)[1]) / (2 * step)

        def statistic(positive_weights: Vector, unlabelled_weights: Vector) -> float:
            resampled = Curve(even.kernel, _shares(positive_weights[p]), _shares(unlabelled_weights[u]))
            change = resampled.at(estimate, free, exchange=False)[1] - slope
            return float(np.clip(estimate - change / max(rise, 1e-9), 0, 1))

        return statistic

    def _curve(
        self, positives: Float[np.ndarray, "m d"], unlabelled: Float[np.ndarray, "n d"]
    ) -> tuple[Curve, float, Bool[np.ndarray, " k"]]:
        """Return the distance's curve at the best width, ν, and which examples the mixture is made of at the start."""
        m, n = len(positives), len(unlabelled)
        found = []
        for kernel in kernels_by_distance(positives, unlabelled, self.widths):
            curve = Curve(kernel, np.full(m, 1 / m), np.full(n, 1 / n))
            distance, _, free = curve.at(1 - 1 / _START, np.ones(m + n, dtype=bool))
            start = distance / (_START - 1)
            threshold = float(1 / np.sqrt(min(m, n)))
            if self.variant == "km2" or threshold > 0.9 * curve.far:
                threshold = 0.8 * start + 0.2 * curve.far
            found.append((curve, threshold, free))
            if start < threshold:
                return found[-1]
        return found[0]


class Curve:
    """The distance d(λ) of λ φ(U) + (1 − λ) φ(P) from the convex hull of all examples, the positives being first."""

    def __init__(self, kernel: Float[np.ndarray, "n n"], positives: Vector, unlabelled: Vector) -> None:
        self.kernel, self.positives, self.unlabelled = kernel, positives, unlabelled
        self.difference = np.concatenate([-positives, unlabelled])
        self.far = float(np.sqrt(self.difference @ kernel @ self.difference))

    def at(
        self, theta: float, free: Bool[np.ndarray, " n"], *, exchange: bool = True
    ) -> tuple[float, float, Bool[np.ndarray, " n"]]:
        """Return d and its derivative at λ = 1/(1 − θ), and which examples the nearest mixture is made of.

        ``free`` is a guess of the latter, kept unless ``exchange``. The nearest mixture does not move to first order,
        so that the derivative is that of the point alone: ⟨point − mixture, φ(U) − φ(P)⟩ / d.
        """
        stretch = 1 / (1 - theta)
        point = np.concatenate([(1 - stretch) * self.positives, stretch * self.unlabelled])
        if exchange:
            mixture = nearest_mixture(self.kernel, point, free)
        else:
            mixture, _ = nearest_on_face(self.kernel, self.kernel @ point, free)
        towards = self.kernel @ (point - mixture)
        distance = float(np.sqrt(max((point - mixture) @ towards, 0)))
        slope = float(towards @ self.difference) / distance if distance > 0 else 0.0
        return distance, slope, mixture > 0


def kernels_by_distance(
    positives: Float[np.ndarray, "m d"], unlabelled: Float[np.ndarray, "n d"], widths: tuple[float, ...]
) -> Iterator[Float[np.ndarray, "k k"]]:
    """Yield the Gaussian kernels of all examples, that which sets P and U farthest apart first.

    Widths are in medians of the distances. A kernel is centred, which changes no distance between mixtures, and has a
    little of the identity added, which makes it definite.
    """
    pooled = np.concatenate([positives, unlabelled])
    squares = squared_distances(pooled, pooled)
    squares /= 2 * median_square(squares)
    apart, m = [], len(positives)
    for width in widths:
        kernel = np.exp(-squares / width**2)
        within = _mean_of_others(kernel[:m, :m]) + _mean_of_others(kernel[m:, m:])
        apart.append(within - 2 * float(kernel[:m, m:].mean()))
    for at in np.argsort(apart)[::-1]:
        kernel = np.exp(-squares / widths[at] ** 2)
        means = kernel.mean(axis=0)
        yield kernel - means - means[:, None] + means.mean() + _RIDGE * np.eye(len(kernel))


def _mean_of_others(kernel: Matrix) -> float:
    n = len(kernel)
    return float((kernel.sum() - n) / (n * (n - 1)))


def _shares(weights: Vector) -> Vector:
    shares: Vector = weights / weights.sum()
    return shares
