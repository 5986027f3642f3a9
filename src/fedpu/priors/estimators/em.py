"""Prior shift by EM on a classifier's posteriors (Saerens, Latinne & Decaestecker 2002)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from fedpu.priors.estimators.base import Matrix, Sample, Statistic, Vector
from fedpu.priors.estimators.scores import ScoreEstimator


class Em(ScoreEstimator):
    """The maximum-likelihood priors of U, given posteriors p(c | x) that are right for the training priors π.

    Their iteration: E, p_U(c | x) ∝ θ_c p(c | x) / π_c; M, θ_c = mean over U of p_U(c | x). The likelihood is concave
    in θ, so that every start leads to the maximum. It gives all classes and needs no labelled example; where there are
    some of several classes, ``calibration`` can use them. Posteriors that are too sure of themselves make it count
    decisions, posteriors that are too timid make it exaggerate.

    Bootstrap: the posteriors of U are resampled; the calibration stays.
    """

    name: Literal["em"] = "em"
    steps: int = Field(1000, ge=1, description="most iterations")
    tolerance: float = Field(1e-7, gt=0, description="it ends when no prior moves by more")

    def fit_scores(
        self, sample: Sample, training_priors: Float[np.ndarray, " C"], confusion: Matrix | None
    ) -> Statistic:
        """Return the maximum-likelihood priors as a function of the weights of U."""
        even = np.full(sample.classes, 1 / sample.classes)
        everyone = np.full(len(sample.unlabelled), 1 / len(sample.unlabelled))
        ratios = likelihoods(sample.unlabelled, training_priors)
        # Every start leads to the one maximum; from near it the way is short. A share of zero would stay zero.
        start = 0.9 * most_likely(ratios, everyone, even, self.steps, self.tolerance) + 0.1 * even

        def statistic(positives: list[Vector], unlabelled: Vector) -> Vector:
            return most_likely(ratios, unlabelled, start, self.steps, self.tolerance)

        return statistic


def likelihoods(scores: Float[np.ndarray, "n C"], training_priors: Float[np.ndarray, " C"]) -> Float[np.ndarray, "n C"]:
    """Return p(x | c) up to a factor of each example: p(c | x) / π_c."""
    ratios: Float[np.ndarray, "n C"] = scores / training_priors
    return ratios


def most_likely(
    ratios: Float[np.ndarray, "n C"],
    weights: Float[np.ndarray, " n"],
    start: Float[np.ndarray, " C"],
    steps: int = 1000,
    tolerance: float = 1e-7,
) -> Float[np.ndarray, " C"]:
    """Return the θ that maximises Σ_x w(x) log Σ_c θ_c p(x | c), by EM."""
    priors = start
    for _ in range(steps):
        new = priors * ((weights / (ratios @ priors)) @ ratios)
        moved, priors = np.abs(new - priors).max(), new
        if moved <= tolerance:
            break
    normalised: Float[np.ndarray, " C"] = priors / priors.sum()
    return normalised
