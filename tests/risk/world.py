"""A tiny world in which every probability is enumerated: the independent truth that the risks are tested against.

Nothing here uses the package's risks. Expectations are sums over points, written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

EPSILON = 1e-6


@dataclass(frozen=True, eq=False)
class World:
    """``counts[i, x]`` examples of class i at point x, and the classifier's logits at each point."""

    counts: np.ndarray
    logits: np.ndarray

    @classmethod
    def random(cls, seed: int, classes: int, points: int = 5) -> World:
        rng = np.random.default_rng(seed)
        return cls(rng.integers(1, 5, (classes, points)), rng.normal(0, 2, (points, classes)))

    @property
    def classes(self) -> int:
        return len(self.counts)

    @cached_property
    def priors(self) -> np.ndarray:
        return self.counts.sum(axis=1) / self.counts.sum()

    @cached_property
    def probabilities(self) -> np.ndarray:
        e = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def mean(self, i: int, values: np.ndarray) -> float:
        """E_i of a value for every point."""
        return sum(self.counts[i, x] * values[x] for x in range(len(values))) / self.counts[i].sum()

    def absolute(self, m: int) -> np.ndarray:
        """1 − p_m at every point."""
        return 1 - self.probabilities[:, m]

    def wrong_matrix(self) -> torch.Tensor:
        """E_i[1 − p_m] for all i, m."""
        return torch.tensor(
            [[self.mean(i, self.absolute(m)) for m in range(self.classes)] for i in range(self.classes)]
        ).double()

    def unlabelled_vector(self, priors: np.ndarray | None = None) -> torch.Tensor:
        """E_U[1 − p_m] when U is a mixture of the classes with those priors."""
        mix = self.priors if priors is None else priors
        return torch.tensor(
            [sum(mix[i] * self.mean(i, self.absolute(m)) for i in range(self.classes)) for m in range(self.classes)]
        ).double()

    def true_risk(self) -> float:
        """Σ_i π_i E_i[1 − p_i], by counting every example."""
        total = 0.0
        for i in range(self.classes):
            for x in range(self.counts.shape[1]):
                total += self.counts[i, x] * (1 - self.probabilities[x, i])
        return total / self.counts.sum()

    def batch(self, positive: set[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch that is the world: each class once labelled if positive, and everything once more unlabelled."""
        rows: list[int] = []
        labels: list[int] = []
        for i in range(self.classes):
            for x in range(self.counts.shape[1]):
                rows += [x] * int(self.counts[i, x])
                labels += [-1] * int(self.counts[i, x])
                if i in positive:
                    rows += [x] * int(self.counts[i, x])
                    labels += [i] * int(self.counts[i, x])
        return torch.tensor(self.logits[rows]).double(), torch.tensor(labels)


def mask(positive: set[int], classes: int) -> torch.Tensor:
    return torch.tensor([c in positive for c in range(classes)])


def brute_force_lent(sets: list[set[int]], k: int, classes: int) -> np.ndarray:
    """a_im = #{q ≠ k : i ∉ P_q and m ∉ P_q}, counted one by one."""
    a = np.zeros((classes, classes))
    for i in range(classes):
        for m in range(classes):
            if i != m:
                a[i, m] = sum(1 for q, other in enumerate(sets) if q != k and i not in other and m not in other)
    return a
