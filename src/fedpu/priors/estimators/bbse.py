"""Black-box shift estimation: the confusion matrix, inverted (Lipton, Wang & Smola 2018)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from fedpu.priors.estimators.base import Matrix, Sample, Statistic, Vector
from fedpu.priors.estimators.em import likelihoods, most_likely
from fedpu.priors.estimators.scores import ScoreEstimator
from fedpu.priors.estimators.simplex import quadratic

Predictions = Literal["soft", "hard"]


class Bbse(ScoreEstimator):
    """The θ with Σ_i θ_i M_i = the mean prediction on U, M_i being the mean prediction on examples of class i.

    This is their Ĉ ŵ = μ̂, with each column of Ĉ divided by its class's share, so that θ itself is solved
    for. Posteriors need not be right, only tell classes apart: M measures how wrong they are. ``soft`` predictions are
    posteriors, ``hard`` ones decisions. The solution is the least-squares one on the simplex, which is the inverse
    wherever that is on it.

    Row i of M is ``confusion``'s where that has one; else the mean over the client's own labelled positives of class
    i; else what the classifier itself expects, Σ_x q_i(x) p(x) / Σ_x q_i(x) over U with q its posteriors under the
    priors that em finds. Where posteriors are right that is as good as em. Where they are not, the rows that were
    measured and those that are believed contradict each other, and a class without positives can be far worse than
    em's, or far better (``docs/priors.md``).

    Bootstrap: U and the labelled positives are resampled, and with them the rows measured on them; others stay.
    """

    name: Literal["bbse"] = "bbse"
    predictions: Predictions = Field("soft", description="soft: posteriors, hard: decisions")

    def fit_scores(
        self, sample: Sample, training_priors: Float[np.ndarray, " C"], confusion: Matrix | None
    ) -> Statistic:
        """Return the priors as a function of the weights of the positives and of U."""
        own = [predicted(array, self.predictions) for array in sample.positives]
        unlabelled_predictions = predicted(sample.unlabelled, self.predictions)
        given = np.full((sample.classes, sample.classes), np.nan) if confusion is None else confusion
        fixed = np.where(
            np.isfinite(given), given, expected_rows(sample.unlabelled, unlabelled_predictions, training_priors)
        )
        measured = [at for at, c in enumerate(sample.labelled) if not np.isfinite(given[c]).all()]

        def statistic(positives: list[Vector], unlabelled: Vector) -> Vector:
            rows = fixed.copy()
            for at in measured:
                rows[sample.labelled[at]] = positives[at] @ own[at]
            return mixed_from(rows, unlabelled @ unlabelled_predictions)

        return statistic


def predicted(scores: Float[np.ndarray, "n C"], predictions: Predictions) -> Float[np.ndarray, "n C"]:
    """Return the posteriors themselves, or ones at the decisions."""
    return scores if predictions == "soft" else np.eye(scores.shape[1])[scores.argmax(axis=1)]


def expected_rows(
    scores: Float[np.ndarray, "n C"], predictions: Float[np.ndarray, "n C"], training_priors: Float[np.ndarray, " C"]
) -> Float[np.ndarray, "C C"]:
    """Return the mean prediction on each class's part of U, as the posteriors themselves divide U up.

    Of a class that has less than one example in U by em's count nothing can be seen there; it is taken to be predicted
    as what it is.
    """
    ratios = likelihoods(scores, training_priors)
    priors = most_likely(ratios, np.full(len(scores), 1 / len(scores)), training_priors)
    parts = ratios * priors
    parts /= parts.sum(axis=1, keepdims=True)
    sizes = parts.sum(axis=0)[:, None]
    rows: Float[np.ndarray, "C C"] = (parts.T @ predictions) / np.maximum(sizes, 1)
    return np.where(sizes < 1, np.eye(len(rows)), rows)


def mixed_from(rows: Float[np.ndarray, "C C"], mean: Float[np.ndarray, " C"]) -> Float[np.ndarray, " C"]:
    """Return the θ on the simplex that minimises ‖θᵀ rows − mean‖²."""
    return quadratic(rows @ rows.T, rows @ mean)
