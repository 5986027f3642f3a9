"""Estimators that work from a classifier's posteriors: it knows every class, so they tell every class's prior."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Num
from pydantic import Field

from fedpu.errors import EstimationError
from fedpu.priors.estimators.base import Estimate, Estimator, Matrix, Sample, Statistic, interval
from fedpu.priors.estimators.calibration import fit_calibration


class ScoreEstimator(Estimator):
    """What the estimators from a classifier's posteriors share: calibration, and what is known of the classifier.

    They hold under label shift alone: the classifier may have been trained on any class shares, but within a class
    U must look like what it was trained on.
    """

    needs: ClassVar[Literal["features", "scores"]] = "scores"
    positives_needed: ClassVar[bool] = False
    fewest: ClassVar[int] = 1

    calibration: Literal["none", "temperature", "bcts"] = Field(
        "none", description="how posteriors are made honest on the labelled positives before use"
    )

    def estimate(
        self,
        positives: Mapping[int, Num[np.ndarray, "..."]],
        unlabelled: Num[np.ndarray, "..."],
        *,
        seed: int,
        classes: int | None = None,
        bootstrap: int = 100,
        level: float = 0.95,
        training_priors: Float[np.ndarray, " C"] | None = None,
        confusion: Float[np.ndarray, "C C"] | None = None,
    ) -> Estimate:
        """Return the prior in U of every class of the classifier.

        ``positives`` maps a class to the posteriors (n_i × C) of examples labelled so, and may be empty.
        ``training_priors`` are the class shares for which the posteriors are right; by default all classes are alike.
        ``confusion`` has in row i the mean prediction for examples of class i, from whoever has labelled some, or NaN.
        """
        sample = self.sample(positives, unlabelled, classes)
        priors = _training_priors(training_priors, sample.classes)
        if confusion is not None and confusion.shape != (sample.classes, sample.classes):
            raise EstimationError(f"The confusion matrix must be {sample.classes} × {sample.classes}.")
        scaled = fit_calibration(self.calibration, sample, priors)
        sample = Sample(
            sample.labelled,
            tuple(scaled(array) for array in sample.positives),
            scaled(sample.unlabelled),
            sample.classes,
        )
        return interval(sample, self.fit_scores(sample, priors, confusion), seed, bootstrap, level)

    def fit(self, sample: Sample, seed: int) -> Statistic:
        """Return the priors as a function of the examples' weights, for a classifier trained on even class shares."""
        return self.fit_scores(sample, np.full(sample.classes, 1 / sample.classes), None)

    @abstractmethod
    def fit_scores(
        self, sample: Sample, training_priors: Float[np.ndarray, " C"], confusion: Matrix | None
    ) -> Statistic:
        """Return the priors as a function of the examples' weights."""


def _training_priors(given: Float[np.ndarray, " C"] | None, classes: int) -> Float[np.ndarray, " C"]:
    if given is None:
        return np.full(classes, 1 / classes)
    priors = np.asarray(given, dtype=np.float64)
    if priors.shape != (classes,) or not np.isfinite(priors).all() or (priors <= 0).any():
        raise EstimationError(f"The training priors must be {classes} positive shares; got {given}.")
    shares: Float[np.ndarray, " C"] = priors / priors.sum()
    return shares
