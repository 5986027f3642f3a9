"""The classifier of labelled against unlabelled, read as it is (Elkan & Noto 2008)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fedpu.priors.estimators.base import Sample, Statistic, Vector, class_by_class
from fedpu.priors.estimators.classifier import ClassifierEstimator


class ElkanNoto(ClassifierEstimator):
    """g(x) = P(labelled | x) is the constant c = P(labelled | positive) on every positive, and less elsewhere.

    The paper's three estimators of c: ``e1`` the mean of g over the positives, ``e2`` its sum over them by its sum over
    all, ``e3`` its maximum. There are then n_P / c positives, and the unlabelled ones among them are

        θ = n_P (1 − c) / (c n_U)

    of U, whether the labelled were drawn apart or taken out. g must be right in size, not only in order, and classes
    that overlap bring e1 down and θ up. Several positive classes: one at a time, and the nearest point with Σθ ≤ 1.

    Bootstrap: the scores are resampled; classifiers are not trained again.
    """

    name: Literal["elkan-noto"] = "elkan-noto"
    variant: Literal["e1", "e2", "e3"] = Field("e1", description="the estimator of c")

    def fit(self, sample: Sample, seed: int) -> Statistic:
        """Score the examples, and return the estimate as a function of their weights."""
        return class_by_class(sample, [_Reading(self.variant, p, u) for p, u in self.scores(sample, seed)])


class _Reading:
    def __init__(self, variant: Literal["e1", "e2", "e3"], positives: Vector, unlabelled: Vector) -> None:
        self.variant, self.positives, self.unlabelled = variant, positives, unlabelled

    def __call__(self, positive_weights: Vector, unlabelled_weights: Vector) -> float:
        count, rest = len(self.positives), len(self.unlabelled)
        mean = float(positive_weights @ self.positives)
        if self.variant == "e1":
            constant = mean
        elif self.variant == "e2":
            constant = count * mean / (count * mean + rest * float(unlabelled_weights @ self.unlabelled))
        else:
            constant = max(
                float(self.positives[positive_weights > 0].max()), float(self.unlabelled[unlabelled_weights > 0].max())
            )
        return float(np.clip(count * (1 - constant) / (max(constant, 1e-12) * rest), 0, 1))
