"""Honest posteriors: temperature scaling (Guo et al. 2017), alone or with biases (BCTS, Alexandari et al. 2020).

A network's softmax is right in rank long before it is right in size, and a network that minimised a risk with clamped
and subtracted terms has no reason to be right in size at all. Both maps are fitted by maximum likelihood on labelled
examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int64
from scipy.special import log_softmax, softmax

from fedpu.priors.estimators.base import Matrix, Sample, Vector

_SMALLEST = 1e-12
_MOST = np.log(20.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """softmax(log p / T + b)."""

    temperature: float
    bias: Float[np.ndarray, " C"]

    def __call__(self, scores: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n C"]:
        """Return the calibrated posteriors, none of them zero."""
        return _not_zero(softmax(_logits(scores) / self.temperature + self.bias, axis=1))


def fit_calibration(
    kind: Literal["none", "temperature", "bcts"], sample: Sample, training_priors: Float[np.ndarray, " C"]
) -> Calibration:
    """Fit the map on the labelled positives, each class weighed by its training prior.

    Labelled examples tell of the classes that they are of, so that what is fitted are posteriors *among the labelled
    classes*, p(y | x, y ∈ P). They give the temperature, and the biases of the labelled classes up to a constant (their
    mean is 0); other biases are 0. With fewer than two labelled classes there is nothing to fit, and posteriors stay as
    they are.
    """
    labelled = list(sample.labelled)
    if kind == "none" or len(labelled) < 2:
        return Calibration(1.0, np.zeros(sample.classes))
    logits = np.concatenate([_logits(array)[:, labelled] for array in sample.positives])
    labels = np.repeat(np.arange(len(labelled)), [len(array) for array in sample.positives])
    shares = training_priors[labelled] / training_priors[labelled].sum()
    weights = np.concatenate([np.full(len(a), s / len(a)) for a, s in zip(sample.positives, shares, strict=True)])
    temperature, bias = _most_likely(logits, labels, weights, biased=kind == "bcts")
    full = np.zeros(sample.classes)
    full[labelled] = bias
    return Calibration(temperature, full)


def _most_likely(
    logits: Matrix, labels: Int64[np.ndarray, " n"], weights: Vector, *, biased: bool
) -> tuple[float, Vector]:
    """Minimise −Σ w log softmax(z / T + b) in log T and, if ``biased``, in b, each within ± log 20."""
    classes = logits.shape[1]
    target = np.eye(classes)[labels]

    def loss(x: Vector) -> tuple[float, Vector]:
        scaled = logits * np.exp(-x[0])
        likelihood = log_softmax(scaled + x[1:], axis=1)
        error = weights[:, None] * (np.exp(likelihood) - target)
        gradient = np.concatenate([[-(error * scaled).sum()], error.sum(axis=0) * biased])
        return float(-(weights[:, None] * target * likelihood).sum()), gradient

    from scipy.optimize import minimize  # takes a third of a second, which few runs need

    found = minimize(loss, np.zeros(1 + classes), jac=True, method="L-BFGS-B", bounds=[(-_MOST, _MOST)] * (1 + classes))
    return float(np.exp(found.x[0])), found.x[1:] - found.x[1:].mean()


def _logits(scores: Matrix) -> Matrix:
    logits: Matrix = np.log(_not_zero(scores))
    return logits


def _not_zero(scores: Matrix) -> Matrix:
    positive: Matrix = np.maximum(scores, _SMALLEST)
    return positive
