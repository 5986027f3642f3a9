"""How far an empirical risk strays from its expectation: one inequality, from which every statement here follows.

An example that is decided for class d adds ``weights[d]`` to the empirical risk. Exactly one class is decided for (or
the probabilities p_d sum to one), so what an example adds lies between the smallest and the largest weight, and a
constant on all weights changes nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from fedpu.errors import ConfigError


class Sample(NamedTuple):
    """Independent examples in groups, those of one group with the same weights."""

    counts: Float[Tensor, "*K"]
    """examples in each group [n]"""
    weights: Float[Tensor, "*K C"]
    """what an example of the group adds to the empirical risk when it is decided for class d"""


class Bound(NamedTuple):
    """With probability 1 − δ, expected risk − empirical risk ≤ ``total``, and as likely with the two exchanged."""

    complexity: Float[Tensor, "*K"]
    """the part that V brings, zero for a classifier that is fixed before the data are drawn"""
    deviation: Float[Tensor, "*K"]
    """the part that δ brings"""

    @property
    def total(self) -> Float[Tensor, "*K"]:
        """The bound."""
        return self.complexity + self.deviation

    def together(self) -> Bound:
        """Return the bound of the sum over the last dimension: of independent parts the squares of deviations add."""
        return Bound(self.complexity.sum(dim=-1), self.deviation.square().sum(dim=-1).sqrt())


def bound(sample: Sample, delta: float, v: float = 0.0) -> Bound:
    """Return the bound of each group by McDiarmid's inequality; with V = 0 it is Hoeffding's.

    2 V √n Σ_d |w_d − median(w)|  +  √(½ log(1/δ) n) · (max_d w_d − min_d w_d). V/√n bounds the Rademacher complexity of
    every class of functions x ↦ 1[f(x) = d] over n examples.
    """
    low, high = sample.weights.amin(dim=-1), sample.weights.amax(dim=-1)
    median = sample.weights.median(dim=-1, keepdim=True).values
    spread = (sample.weights - median).abs().sum(dim=-1)
    root = sample.counts.sqrt()
    return Bound(2 * v * root * spread, math.sqrt(log_inverse(delta) / 2) * root * (high - low))


def log_inverse(delta: float) -> float:
    """Return log(1/δ)."""
    if not 0 < delta < 1:
        raise ConfigError(f"δ = {delta} can't be used: it is a probability, above 0 and below 1.")
    return -math.log(delta)


def vc_constant(dimension: int, count: int) -> float:
    """Return V = √(½ d log(e n/d)) for sets {x : f(x) = m} of VC dimension d, valid for up to ``count`` examples.

    Sauer's lemma leaves at most (e n/d)^d ways to decide n ≥ d examples, and Massart's lemma on vectors of ±½ then
    bounds the Rademacher complexity by V/√n. With n < d the complexity, which is never above ½, is below √(½ d/n).
    """
    if dimension < 0:
        raise ConfigError(f"A VC dimension of {dimension} can't be used: it is a whole number from 0.")
    if dimension == 0:
        return 0.0
    return math.sqrt(dimension * math.log(math.e * max(count, dimension) / dimension) / 2)
