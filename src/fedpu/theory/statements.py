"""Theorems 1, 2 and 4 and Lemma 3 in a form that holds, for bounded losses: ℓ_m = 1[f ≠ m], or 1 − p_m.

V = 0 is the paper's "fix f", a classifier chosen before the data are drawn; with V > 0 they hold for all f at once.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedpu.errors import ConfigError
from fedpu.risk import RiskConstants, Terms
from fedpu.theory.concentration import Sample, bound


def theorem1(positive: Bool[Tensor, " C"], i: int, count: int, delta: float, v: float = 0.0) -> float:
    """``theorem1``, mended: E_i[ℓ_i − Σ_{m∉P} ℓ_m] less its mean over n labelled examples of class i.

    The bracket is 1 − |N| − 1[f = i] + 1[f ∈ N]: its range is 2, or 1 when no class is negative.
    """
    weights = (~positive).double()
    weights[i] = -1
    return _of_mean(weights, count, delta, v)


def theorem2(count: int, delta: float, v: float = 0.0) -> float:
    """``theorem2`` without what it does not need: E_i[ℓ_m] less its mean over n labelled examples, or the reverse."""
    return _of_mean(torch.tensor([-1.0, 0.0]).double(), count, delta, v)


def lemma3(constants: RiskConstants, wrong: Float[Tensor, "C C"], weights: Float[Tensor, " C"]) -> Terms:
    """``lemma3``, mended: Σ_{m∉P} E_U[ℓ_m] = Σ_{i∈P} π_i r_i Σ_{m∉P} E_i[ℓ'_m] + Σ_{m∉P} E_U[ℓ'_m].

    ``weights`` are r_y, one for each *class*, zero for negative ones, and ℓ' = ℓ / (1 + r_y) of an example of class y.
    E_U[ℓ'] then depends on the hidden classes, so that no client can compute its mean: Theorem 4 can't be built on it.
    """
    if (weights[~constants.positive] != 0).any() or (weights < 0).any():
        raise ConfigError("The weights of Lemma 3 must be zero for negative classes, and nowhere below zero.")
    n = (~constants.positive).to(wrong.dtype)
    losses = wrong @ n / (1 + weights)
    labelled = (constants.unlabelled_priors * weights) @ losses
    unlabelled = constants.unlabelled_priors @ losses
    return {"labelled": labelled, "unlabelled": unlabelled, "total": labelled + unlabelled}


def theorem4(positive: Bool[Tensor, " C"], count: int, delta: float, v: float = 0.0) -> float:
    """``theorem4``, mended: Σ_{m∉P} E_U[ℓ_m] less its mean over n unlabelled examples.

    Σ_{m∉P} ℓ_m = |N| − 1[f ∈ N] has range 1, and its mean over U needs no labelled data.
    """
    return _of_mean(-(~positive).double(), count, delta, v)


def _of_mean(weights: Float[Tensor, " C"], count: int, delta: float, v: float) -> float:
    return float(bound(Sample(torch.tensor(float(count)).double(), weights / count), delta, v).total)
