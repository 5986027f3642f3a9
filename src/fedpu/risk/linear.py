"""Risks that are linear in −log p and −log(1 − p + ε), for a stack of clients at once, with their gradient written out.

The trainable risk is Σ over examples and classes of ``wrong`` and ``right`` times weights that depend on the example's
label alone: one table per client. Looking the weights up and writing the softmax's gradient down takes a dozen
operations for all clients of a stack, where automatic differentiation takes a hundred for each. Equal to
:func:`fedpu.risk.fedpu_risk` (tested).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.risk.constants import Clamp, Expectation, RiskConstants
from fedpu.risk.surrogates import EPSILON

PADDING = -2
"""the label of an example that is only there to fill a stack's shorter batches"""


class LinearForm(NamedTuple):
    """What is the same for all clients of a method."""

    names: tuple[str, ...]
    """the method's terms, in the order in which :func:`linear_risk` returns them"""
    clamp: Clamp = "off"
    unbiased: bool = False
    """are a group's weights divided by the number of members to be expected, or by the number that the batch has?"""
    blocks: bool = True
    """has it terms besides the plain mean?"""
    plain: float = 0.0
    """weight of a plain mean of −log p_y over the labelled examples"""


class LinearRisk(NamedTuple):
    """Weights of K clients by group (C classes, then the unlabelled examples)."""

    weights: Float[Tensor, "*K G C4"]
    """four blocks of C: of −log p_m in ``positive``; of −log(1−p_m+ε) in ``against-negative``, ``unlabelled``,
    ``lent``
    """
    fixed: Float[Tensor, "*K G 4"]
    """what an example adds to each block's term whatever is decided"""


CROSS_ENTROPY_FORM = LinearForm(("positive",), blocks=False, plain=1.0)


def fedpu_form(clamp: Clamp, expectation: Expectation, cross_entropy: float) -> LinearForm:
    """Return the form of ``equ:fedpurisk``."""
    names = ("positive", "against-negative", "unlabelled", "lent", "clamp")
    extra = ("cross-entropy",) if cross_entropy else ()
    return LinearForm((*names, *extra), clamp, expectation == "unbiased", plain=cross_entropy)


def fedpu_table(constants: RiskConstants) -> LinearRisk:
    """Return the weights of ``equ:fedpurisk`` in its trainable form with the log surrogate."""
    p = constants.positive.to(constants.priors.dtype)
    negatives = (1 - p).sum(dim=-1, keepdim=True)
    exists = (negatives > 0).to(p.dtype)
    classes = p.shape[-1]
    labelled = -constants.unlabelled_share[..., None] * constants.unlabelled_priors * p * exists
    weights = p.new_zeros(*p.shape[:-1], classes + 1, 4 * classes)
    own, against, unlabelled, lent = weights.split(classes, dim=-1)
    own[..., :classes, :] = torch.diag_embed(constants.priors * p)
    against[..., :classes, :] = labelled[..., :, None] * p[..., None, :]
    unlabelled[..., classes, :] = constants.unlabelled_share[..., None] * p * exists
    lent[..., :classes, :] = (constants.priors * p)[..., None] * constants.lent
    fixed = p.new_zeros(*p.shape[:-1], classes + 1, 4)
    fixed[..., :classes, 1] = labelled * (negatives - 1)
    fixed[..., classes, 2] = constants.unlabelled_share * exists[..., 0] * (negatives[..., 0] - 1)
    fixed[..., 3] = -lent.sum(dim=-1)
    scale = torch.where(constants.shares > 0, 1 / constants.shares.clamp(min=1e-12), 1)[..., None]
    return LinearRisk(weights * scale, fixed * scale)


def linear_risk(
    logits: Float[Tensor, "K N C"], labels: Int64[Tensor, "K N"], risk: LinearRisk | None, form: LinearForm
) -> tuple[Float[Tensor, "K N C"], Float[Tensor, "K T"]]:
    """Return the gradient of every client's total with respect to its logits, and its terms in the form's order."""
    log_p = logits.log_softmax(dim=2)
    p = log_p.exp()
    gradient, terms = torch.zeros_like(p), []
    if form.blocks:
        assert risk is not None
        gradient, values = _blocks(log_p, p, labels, risk, form)
        terms.append(values)
    if form.plain:
        labelled = (labels >= 0).to(p.dtype)
        mean = form.plain * labelled / labelled.sum(dim=1, keepdim=True).clamp(min=1)
        own = labels.clamp(min=0)[:, :, None]
        gradient = torch.addcmul(gradient, p, mean[:, :, None]).scatter_add_(2, own, -mean[:, :, None])
        terms.append(-(mean * log_p.gather(2, own)[:, :, 0]).sum(dim=1, keepdim=True))
    return gradient, terms[0] if len(terms) == 1 else torch.cat(terms, dim=1)


def _blocks(
    log_p: Float[Tensor, "K N C"],
    p: Float[Tensor, "K N C"],
    labels: Int64[Tensor, "K N"],
    risk: LinearRisk,
    form: LinearForm,
) -> tuple[Float[Tensor, "K N C"], Float[Tensor, "K 5"]]:
    clients, examples, classes = p.shape
    real = (labels != PADDING).to(p.dtype)
    group = torch.where(labels < 0, classes, labels)
    example = real / _members(group, real, form.unbiased, classes + 1)
    weights = risk.weights.gather(1, group[:, :, None].expand(-1, -1, 4 * classes)).mul_(example[:, :, None])
    rest = (1 + EPSILON) - p
    right = rest.log()
    values = weights * torch.cat([log_p, right, right, right], dim=2)
    sums = values.view(clients, examples, 4, classes).sum(dim=(1, 3)).neg_()
    excess = sums[:, 1] + sums[:, 2]

    # d(−log p_m)/dz_j = p_j − 1[j=m];   d(−log(1−p_m+ε))/dz_j = p_m (1[j=m] − p_j) / (1−p_m+ε)
    own, against, unlabelled, lent = weights.split(classes, dim=2)
    hidden = (against + unlabelled).mul_(_gradient_factor(excess, form.clamp)[:, None, None])
    slope = hidden.add_(lent).mul_(p).div_(rest).sub_(own)
    gradient = torch.addcmul(slope, p, slope.sum(dim=2, keepdim=True), value=-1)

    fixed = risk.fixed.gather(1, group[:, :, None].expand(-1, -1, 4)) * example[:, :, None]
    below = (-excess).clamp(min=0) * {"max": 1.0, "reverse": 2.0, "off": 0.0}[form.clamp]
    return gradient, torch.cat([sums + fixed.sum(dim=1), below[:, None]], dim=1)


def _members(
    group: Int64[Tensor, "K N"], real: Float[Tensor, "K N"], unbiased: bool, groups: int
) -> Float[Tensor, "K _"]:
    """Return what an example's weight is divided by: the batch's size where the table knows the shares of groups."""
    if unbiased:
        return real.sum(dim=1, keepdim=True).clamp_(min=1)
    counts = real.new_zeros(len(real), groups).scatter_add_(1, group, real)
    return counts.clamp_(min=1).gather(1, group)


def _gradient_factor(excess: Float[Tensor, " K"], clamp: Clamp) -> Float[Tensor, " K"]:
    """Return what the clamped part's gradient is multiplied with: 1 above the bound; 0 or −1 below it."""
    if clamp == "off":
        return torch.ones_like(excess)
    above = (excess >= 0).to(excess.dtype)
    return above if clamp == "max" else 2 * above - 1
