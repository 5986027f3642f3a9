"""The trainable form of ``equ:fedpurisk`` on a batch of logits."""

from __future__ import annotations

from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.risk.constants import Clamp, RiskConstants, Terms
from fedpu.risk.expectation import labelled_mean, memberships, own_class
from fedpu.risk.surrogates import SURROGATES


def fedpu_risk(
    logits: Float[Tensor, "n C"],
    labels: Int64[Tensor, " n"],
    constants: RiskConstants,
    *,
    surrogate: str = "log",
    clamp: Clamp = "reverse",
    cross_entropy: float = 0.0,
) -> Terms:
    """``equ:fedpurisk`` with every subtracted loss rewritten as an added one.

    Since 1[f ≠ m] = 1 − 1[f = m] and exactly one class is decided for, Σ_{m∈N} ℓ_m = |N| − 1 + Σ_{i∈P} 1[f = i] and
    −ℓ_m = −1 + 1[f = m]. With ``right`` standing in for 1[f = m] nothing that is minimised is unbounded below but the
    correction of the unlabelled term, and that is clamped. With ``absolute`` the value equals
    :func:`fedpu.risk.equations.fedpu_risk` to rounding; constants are kept for that.

    Terms: ``positive`` Σ_{i∈P} π_i E_i[ℓ_i]; ``against-negative`` −Σ_{i∈P} π_i E_i[Σ_{m∈N} ℓ_m]; ``unlabelled``
    Σ_{m∈N} E_U[ℓ_m]; ``clamp``, what was added to keep the last two together above their bound; ``lent``; and, when
    asked for, ``cross-entropy``, a plain mean over the labelled examples with that weight. π is taken inside U where U
    is concerned.
    """
    wrong, right = SURROGATES[surrogate](logits)
    batch = memberships(labels, constants.shares)
    ones, unlabelled_one = batch.of_one
    p = constants.positive.to(logits.dtype)
    negatives = len(p) - p.sum()
    exists = (negatives > 0).to(logits.dtype)  # with no negative class there is nothing to learn from U

    decided_positive = right @ p
    constant = exists * (negatives - 1)
    weight = constants.unlabelled_share * constants.unlabelled_priors
    terms: Terms = {
        "positive": (constants.priors * p * (batch.labelled * wrong.T).sum(dim=1)).sum(),
        "against-negative": -(weight * (exists * p * (batch.labelled @ decided_positive) + constant * p * ones)).sum(),
        "unlabelled": constants.unlabelled_share
        * (exists * (batch.unlabelled @ decided_positive) + constant * unlabelled_one),
        "lent": ((constants.priors * p)[:, None] * constants.lent * (batch.labelled @ right - ones[:, None])).sum(),
    }
    floor = constant * (constants.unlabelled_share * unlabelled_one - (weight * p * ones).sum())
    terms["clamp"] = clamped(terms["unlabelled"] + terms["against-negative"] - floor, clamp)
    if cross_entropy:
        losses = -own_class(logits.log_softmax(dim=1), labels)
        terms["cross-entropy"] = cross_entropy * labelled_mean(losses, labels)
    return total(terms)


def clamped(excess: Float[Tensor, ""], clamp: Clamp) -> Float[Tensor, ""]:
    """Return what must be added to a part that lies ``excess`` above its bound (nnPU, Kiryo et al. 2017).

    ``max``: below the bound the part has no gradient; ``reverse``: below it the gradient is turned around.
    """
    below = (-excess).clamp(min=0)
    if clamp == "max":
        return below
    if clamp == "reverse":
        return 2 * below
    return below * 0


def total(terms: Terms) -> Terms:
    """Return the terms with their sum as ``total``."""
    return terms | {"total": sum(terms.values(), start=terms["positive"].new_zeros(()))}
