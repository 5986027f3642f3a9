"""Conventional PU learning: all negative classes are one (Baseline-3); uPU and nnPU are its binary case."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.risk.constants import Clamp, RiskConstants, Terms, plain_constants
from fedpu.risk.expectation import memberships
from fedpu.risk.federated import clamped, total


def conventional_pu_risk(
    logits: Float[Tensor, "n C"],
    labels: Int64[Tensor, " n"],
    constants: RiskConstants,
    *,
    bounded: bool = False,
    clamp: Clamp = "reverse",
) -> Terms:
    """Multi-positive PU risk with one grouped negative class (Xu et al. 2017), kept non-negative as in nnPU.

    Σ_{i∈P} π_i E_i[ℓ_i] + max(0, E_U[ℓ_N] − Σ_{i∈P} π_i E_i[ℓ_N]), where the group's probability is p_N = Σ_{m∈N} p_m.
    The loss is −log p, or 1 − p if ``bounded``. Nothing here tells one negative class from another.
    """
    log_p = logits.log_softmax(dim=1)
    p = constants.positive.to(logits.dtype)
    exists = (~constants.positive).any()
    group = torch.where(constants.positive & exists, -torch.inf, logits).logsumexp(dim=1)
    log_group = group - logits.logsumexp(dim=1)
    wrong = 1 - log_p.exp() if bounded else -log_p
    wrong_group = (1 - log_group.exp() if bounded else -log_group) * exists

    batch = memberships(labels, constants.shares)
    weight = constants.unlabelled_share * constants.unlabelled_priors
    terms: Terms = {
        "positive": (constants.priors * p * (batch.labelled * wrong.T).sum(dim=1)).sum(),
        "against-negative": -(weight * p * (batch.labelled @ wrong_group)).sum(),
        "unlabelled": constants.unlabelled_share * (batch.unlabelled @ wrong_group),
    }
    terms["clamp"] = clamped(terms["unlabelled"] + terms["against-negative"], clamp)
    return total(terms)


def upu_risk(
    scores: Float[Tensor, " n"], positive: Int64[Tensor, " n"], prior: float, *, bounded: bool = False
) -> Terms:
    """Unbiased binary PU risk (du Plessis et al. 2014): π E_P[ℓ(z)] + E_U[ℓ(−z)] − π E_P[ℓ(−z)].

    ``positive`` is 1 for labelled positives and −1 for unlabelled examples; ℓ is the logistic loss, or the sigmoid
    loss if ``bounded``.
    """
    return _binary(scores, positive, prior, bounded, "off")


def nnpu_risk(
    scores: Float[Tensor, " n"], positive: Int64[Tensor, " n"], prior: float, *, bounded: bool = True
) -> Terms:
    """Non-negative binary PU risk (Kiryo et al. 2017): π E_P[ℓ(z)] + max(0, E_U[ℓ(−z)] − π E_P[ℓ(−z)])."""
    return _binary(scores, positive, prior, bounded, "max")


def _binary(
    scores: Float[Tensor, " n"], positive: Int64[Tensor, " n"], prior: float, bounded: bool, clamp: Clamp
) -> Terms:
    # Two classes with logits (0, z): p_1 = σ(z), so −log p_1 is the logistic loss and 1 − p_1 the sigmoid loss.
    logits = torch.stack([torch.zeros_like(scores), scores], dim=1)
    constants = plain_constants(torch.tensor([False, True]), torch.tensor([1 - prior, prior], dtype=scores.dtype))
    return conventional_pu_risk(logits, positive, constants, bounded=bounded, clamp=clamp)
