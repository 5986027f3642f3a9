"""What a risk needs to know of a client besides its data: classes, priors, and what it lends to others."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedpu.errors import ConfigError
from fedpu.labelling import ClassSummary
from fedpu.priors import unlabelled_priors
from fedpu.risk.lent import Lent, lent_weights

Terms = dict[str, Tensor]
"""The terms of a risk by name; ``"total"``, what is minimised, is the sum of the others."""

Clamp = Literal["max", "reverse", "off"]
"""The part of a risk that can't be negative in truth: kept at its bound, turned around below it, or left alone."""


Expectation = Literal["batch", "unbiased"]
"""An expectation over a group of examples: the mean over those in the batch, or their sum over the number expected."""


class RiskConstants(NamedTuple):
    """The constants of a client's risk, or of K clients' (symbols of the paper in brackets)."""

    positive: Bool[Tensor, "*K C"]
    """positive classes [P]; the others are its negative classes [N]"""
    priors: Float[Tensor, "*K C"]
    """class priors in the client's population [π]"""
    unlabelled_priors: Float[Tensor, "*K C"]
    """class priors inside the unlabelled data; π in the case-control scenario"""
    unlabelled_share: Float[Tensor, "*K"]
    """the share of the population that the unlabelled data stand for; 1 in the case-control scenario"""
    lent: Float[Tensor, "*K C C"]
    """how often labelled data of class i stand in for other clients against class m [a_im]"""
    shares: Float[Tensor, "*K C1"]
    """shares of labelled examples of each class, and last of unlabelled ones, in the data; 0: take the batch's own"""


def client_constants(
    summary: ClassSummary, co_negatives: Float[Tensor, "C C"], clients: int, lent: Lent, expectation: Expectation
) -> RiskConstants:
    """Return the constants of a client's risk, or of several, from what they know and the one sum over clients."""
    if summary.priors is None:
        raise ConfigError("This method needs class priors, and nobody knows them: set priors.source and priors.values.")
    inside, share = unlabelled_priors(summary.priors, summary.labelled, summary.unlabelled, summary.scenario)
    counts = torch.cat([summary.labelled, summary.unlabelled[..., None]], dim=-1).to(summary.priors.dtype)
    shares = counts / counts.sum(dim=-1, keepdim=True).clamp(min=1)
    return RiskConstants(
        positive=summary.positive,
        priors=summary.priors,
        unlabelled_priors=inside,
        unlabelled_share=share,
        lent=lent_weights(co_negatives, summary.positive, clients, lent),
        shares=shares if expectation == "unbiased" else torch.zeros_like(shares),
    )


def plain_constants(
    positive: Bool[Tensor, "*K C"], priors: Float[Tensor, "*K C"], lent: Float[Tensor, "*K C C"] | None = None
) -> RiskConstants:
    """Return the constants of a risk in the case-control scenario, where unlabelled data are the whole population."""
    *many, classes = priors.shape
    return RiskConstants(
        positive=positive,
        priors=priors,
        unlabelled_priors=priors,
        unlabelled_share=priors.new_ones(many),
        lent=priors.new_zeros(*many, classes, classes) if lent is None else lent,
        shares=priors.new_zeros(*many, classes + 1),
    )
