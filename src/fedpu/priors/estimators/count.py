"""Classify and count (Forman 2008): each class's share of the classifier's decisions on U."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float

from fedpu.priors.estimators.base import Matrix, Sample, Statistic, Vector
from fedpu.priors.estimators.bbse import predicted
from fedpu.priors.estimators.scores import ScoreEstimator


class Count(ScoreEstimator):
    """The share of U that the classifier decides to be of each class.

    Its errors are those of the decisions, as far as they do not cancel: no more than the classifier's error rate, and
    never out of proportion to it. It asks nothing of the size of posteriors, so that it can be believed long before
    em, while a classifier is still being trained; em overtakes it when posteriors have become right.

    Bootstrap: the decisions on U are resampled.
    """

    name: Literal["count"] = "count"

    def fit_scores(
        self, sample: Sample, training_priors: Float[np.ndarray, " C"], confusion: Matrix | None
    ) -> Statistic:
        """Return the shares as a function of the weights of U."""
        decisions = predicted(sample.unlabelled, "hard")

        def statistic(positives: list[Vector], unlabelled: Vector) -> Vector:
            shares: Vector = unlabelled @ decisions
            return shares

        return statistic
