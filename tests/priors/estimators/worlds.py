"""Worlds whose class priors are known, because they were made so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

CENTRES = np.array([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 4.0], [-3.0, -3.0, -3.0]])


@dataclass(frozen=True)
class Blobs:
    """Normal clouds of four classes; examples and their exact posteriors under even class shares."""

    positives: dict[int, np.ndarray]
    unlabelled: np.ndarray

    @property
    def scores(self) -> tuple[dict[int, np.ndarray], np.ndarray]:
        return {c: posteriors(x) for c, x in self.positives.items()}, posteriors(self.unlabelled)


def blobs(theta: list[float], labelled: tuple[int, ...], n_positive: int, n_unlabelled: int, seed: int) -> Blobs:
    rng = np.random.default_rng(seed)
    hidden = np.repeat(np.arange(4), np.round(np.array(theta) * n_unlabelled).astype(int))
    return Blobs(
        {c: CENTRES[c] + rng.normal(size=(n_positive, 3)) for c in labelled},
        rng.permutation(CENTRES[hidden] + rng.normal(size=(len(hidden), 3))),
    )


def posteriors(x: np.ndarray) -> np.ndarray:
    return softmax(-0.5 * ((x[:, None] - CENTRES) ** 2).sum(axis=2), axis=1)


@dataclass(frozen=True)
class Table:
    """A world of finitely many x, with counts that are exactly those expected: p(x | c) = likelihood[c, x]."""

    likelihood: np.ndarray
    training_priors: np.ndarray
    theta: np.ndarray
    scale: int = 2000

    @property
    def posteriors(self) -> np.ndarray:
        joint = self.likelihood * self.training_priors[:, None]
        return (joint / joint.sum(axis=0)).T

    def unlabelled(self, scores: np.ndarray) -> np.ndarray:
        return np.repeat(scores, np.round(self.scale * (self.theta @ self.likelihood)).astype(int), axis=0)

    def positives(self, c: int, scores: np.ndarray) -> np.ndarray:
        return np.repeat(scores, np.round(100 * self.likelihood[c]).astype(int), axis=0)


TABLE = Table(
    likelihood=np.array([[0.5, 0.3, 0.1, 0.1, 0.0], [0.1, 0.4, 0.3, 0.1, 0.1], [0.0, 0.1, 0.1, 0.3, 0.5]]),
    training_priors=np.array([0.2, 0.3, 0.5]),
    theta=np.array([0.6, 0.3, 0.1]),
)
