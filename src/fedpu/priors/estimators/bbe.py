"""Best bin estimation (Garg, Wu, Smola, Balakrishnan & Lipton 2021)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from pydantic import Field

from fedpu.priors.estimators.base import Sample, Statistic, Vector, class_by_class
from fedpu.priors.estimators.classifier import ClassifierEstimator


class Bbe(ClassifierEstimator):
    """θ = q_U(c) / q_P(c): the shares of U and of the positives that score at least c, at the best threshold c.

    If the top scores are of positives alone, the ratio there is θ; the lower c, the more negatives come in and the more
    positives there are to count. The paper's algorithm 1 takes the c that minimises the upper confidence bound

        q_U(c)/q_P(c) + (1 + γ)/q_P(c) · (√(log(4/δ) / 2n_U) + √(log(4/δ) / 2n_P)).

    Only the order of scores matters. Several positive classes: one at a time, and the nearest point with Σθ ≤ 1.

    Bootstrap: the scores are resampled and c is chosen anew; classifiers are not trained again.
    """

    name: Literal["bbe"] = "bbe"
    delta: float = Field(0.1, gt=0, lt=1, description="δ of the bound")
    gamma: float = Field(0.01, ge=0, description="γ of the bound")

    def fit(self, sample: Sample, seed: int) -> Statistic:
        """Score the examples, and return the ratio at the best threshold as a function of their weights."""
        return class_by_class(sample, [self._one(p, u) for p, u in self.scores(sample, seed)])

    def _one(self, positives: Vector, unlabelled: Vector) -> Callable[[Vector, Vector], float]:
        thresholds, where = np.unique(np.concatenate([positives, unlabelled]), return_inverse=True)
        of_positives, of_unlabelled = where[: len(positives)], where[len(positives) :]
        width = (1 + self.gamma) * sum(np.sqrt(np.log(4 / self.delta) / (2 * len(s))) for s in (positives, unlabelled))

        def statistic(positive_weights: Vector, unlabelled_weights: Vector) -> float:
            p = _at_least(of_positives, positive_weights, len(thresholds))
            u = _at_least(of_unlabelled, unlabelled_weights, len(thresholds))
            some = p > 1e-12
            ratios, bounds = u[some] / p[some], (u[some] + width) / p[some]
            return float(min(ratios[bounds.argmin()], 1.0))

        return statistic


def _at_least(where: np.ndarray, weights: Vector, thresholds: int) -> Vector:
    """Return the weight of the examples that score at least each threshold."""
    return np.cumsum(np.bincount(where, weights, thresholds)[::-1])[::-1]
