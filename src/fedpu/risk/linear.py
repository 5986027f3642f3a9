"""Risks that are linear in −log p and −log(1 − p + ε), for a stack of clients at once, with their gradient written out.

The trainable risk is Σ over examples and classes of ``wrong`` and ``right`` times weights that depend on the example's
label alone: a table a client. Looking the weights up and writing the softmax's gradient down takes a dozen operations
for all clients of a stack, where automatic differentiation takes a hundred for each. Equal to
:func:`fedpu.risk.fedpu_risk` (tested).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.risk.surrogates import EPSILON
from fedpu.risk.task import Clamp, Task

PADDING = -2
"""the label of an example that is only there to fill a stack's shorter batches"""


class LinearForm(NamedTuple):
    """What is the same for all clients: the clamp, and the names of the six terms (None: the method has no such
    term).
    """

    clamp: Clamp
    names: tuple[str | None, ...]


class LinearRisk(NamedTuple):
    """Weights of one client by label (rows: C classes, then unlabelled), or of K clients with a leading dimension."""

    wrong: Float[Tensor, "*K G C"]
    """weights of −log p_m: the term ``positive``"""
    hidden: Float[Tensor, "*K G C"]
    """weights of −log(1 − p_m + ε) in the part that is clamped: ``against-negative`` and ``unlabelled``"""
    lent: Float[Tensor, "*K G C"]
    """weights of −log(1 − p_m + ε) in the term ``lent``"""
    constant: Float[Tensor, "*K 2 G"]
    """what each example adds to its ``hidden`` and ``lent`` terms whatever is decided"""
    shares: Float[Tensor, "*K G"]
    """shares of the groups in the client's data; 0: a group's mean is over its members in the batch"""
    plain: Float[Tensor, "*K"]
    """weight of a plain mean of −log p_y over the labelled examples"""


def fedpu_form(clamp: Clamp, cross_entropy: float) -> LinearForm:
    """Return the form of ``equ:fedpurisk``."""
    own = ("positive", "against-negative", "unlabelled", "lent", "clamp")
    return LinearForm(clamp, (*own, "cross-entropy" if cross_entropy else None))


def fedpu_table(task: Task, cross_entropy: float) -> LinearRisk:
    """Return the weights of ``equ:fedpurisk`` in its trainable form with the log surrogate."""
    p = task.positive.to(task.priors.dtype)
    negatives = (1 - p).sum(dim=-1, keepdim=True)
    inside = -task.unlabelled_share[..., None] * task.unlabelled_priors * p
    group = torch.cat([inside, task.unlabelled_share[..., None]], dim=-1) * (negatives > 0)
    nothing = torch.zeros_like(p)[..., None, :]
    lent = (task.priors * p)[..., None] * task.lent
    return LinearRisk(
        wrong=torch.cat([torch.diag_embed(task.priors * p), nothing], dim=-2),
        hidden=group[..., None] * p[..., None, :],
        lent=torch.cat([lent, nothing], dim=-2),
        constant=torch.stack(
            [group * (negatives - 1), torch.cat([-lent.sum(dim=-1), nothing[..., 0, :1]], dim=-1)], dim=-2
        ),
        shares=task.shares,
        plain=torch.full_like(task.unlabelled_share, cross_entropy),
    )


CROSS_ENTROPY_FORM = LinearForm("off", (None, None, None, None, None, "positive"))


def cross_entropy_table(task: Task) -> LinearRisk:
    """Return the weights of a plain mean cross-entropy."""
    zeros = torch.zeros_like(task.shares)
    table = zeros[..., None] * task.priors[..., None, :]
    return LinearRisk(
        table, table, table, torch.stack([zeros, zeros], dim=-2), zeros, torch.ones_like(task.unlabelled_share)
    )


def linear_risk(
    logits: Float[Tensor, "K N C"], labels: Int64[Tensor, "K N"], risk: LinearRisk, clamp: Clamp
) -> tuple[Float[Tensor, "K N C"], Float[Tensor, "K 6"]]:
    """Return the gradient of every client's total with respect to its logits, and its terms in the order of
    ``TERMS``.
    """
    groups = risk.shares.shape[1]
    group = torch.where(labels == -1, groups - 1, labels).clamp_(min=0)
    real = (labels != PADDING).to(logits.dtype)
    labelled = (labels >= 0).to(logits.dtype)
    example = _group_weights(group, real, risk.shares)

    log_p = logits.log_softmax(dim=2)
    p = log_p.exp()
    rest = 1 - p + EPSILON
    right = rest.log().neg_()

    expand = group[:, :, None].expand(-1, -1, logits.shape[2])
    weight = example[:, :, None]
    wrong_weight = risk.wrong.gather(1, expand) * weight
    hidden_weight = risk.hidden.gather(1, expand) * weight
    lent_weight = risk.lent.gather(1, expand) * weight
    hidden = (hidden_weight * right).sum(dim=2)
    constants = risk.constant.gather(2, group[:, None, :].expand(-1, 2, -1)) * example[:, None, :]

    excess = hidden.sum(dim=1)
    factor = _gradient_factor(excess, clamp)
    mean = risk.plain[:, None] * labelled / labelled.sum(dim=1, keepdim=True).clamp(min=1)
    own = group.clamp(max=logits.shape[2] - 1)[:, :, None]
    wrong_total = wrong_weight.scatter_add(2, own, mean[:, :, None])
    right_weight = torch.addcmul(lent_weight, hidden_weight, factor[:, None, None])

    # d(−log p_m)/dz_j = p_j − 1[j=m];   d(−log(1−p_m+ε))/dz_j = p_m (1[j=m] − p_j) / (1−p_m+ε)
    pushed = right_weight * p / rest
    gradient = p * (wrong_total.sum(dim=2, keepdim=True) - pushed.sum(dim=2, keepdim=True)) - wrong_total + pushed

    with_constant = hidden + constants[:, 0]
    below = (-excess).clamp(min=0)
    terms = [
        -(wrong_weight * log_p).sum(dim=(1, 2)),
        (with_constant * labelled).sum(dim=1),
        (with_constant * (1 - labelled)).sum(dim=1),
        (lent_weight * right).sum(dim=(1, 2)) + constants[:, 1].sum(dim=1),
        below * {"max": 1.0, "reverse": 2.0, "off": 0.0}[clamp],
        -(mean * log_p.gather(2, own)[:, :, 0]).sum(dim=1),
    ]
    return gradient, torch.stack(terms, dim=1)


def _group_weights(
    group: Int64[Tensor, "K N"], real: Float[Tensor, "K N"], shares: Float[Tensor, "K G"]
) -> Float[Tensor, "K N"]:
    """Return 1 over the number of members of each example's group: the expected one where shares are known."""
    counts = torch.zeros_like(shares).scatter_add_(1, group, real)
    expected = shares * real.sum(dim=1, keepdim=True)
    return real / torch.where(shares > 0, expected, counts.clamp(min=1)).gather(1, group)


def _gradient_factor(excess: Float[Tensor, " K"], clamp: Clamp) -> Float[Tensor, " K"]:
    """Return what the clamped part's gradient is multiplied with: 1 above the bound; 0 or −1 below it."""
    if clamp == "off":
        return torch.ones_like(excess)
    above = (excess >= 0).to(excess.dtype)
    return above if clamp == "max" else 2 * above - 1
