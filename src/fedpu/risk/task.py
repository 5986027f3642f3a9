"""What a risk needs to know of a client besides its data: classes, priors, and what it lends to others."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from fedpu.labelling import Client
from fedpu.priors import unlabelled_priors
from fedpu.risk.lent import Lent, lent_weights

Terms = dict[str, Tensor]
"""The terms of a risk by name; ``"total"``, what is minimised, is the sum of the others."""

Clamp = Literal["max", "reverse", "off"]
"""The part of a risk that can't be negative in truth: kept at its bound, turned around below it, or left alone."""


Expectation = Literal["batch", "unbiased"]
"""An expectation over a group of examples: the mean over those in the batch, or their sum over the number expected."""


class Task(NamedTuple):
    """The constants of one client's risk (symbols of the paper in brackets)."""

    positive: Bool[Tensor, " C"]
    """positive classes [P]; the others are its negative classes [N]"""
    priors: Float[Tensor, " C"]
    """class priors in the client's population [π]"""
    unlabelled_priors: Float[Tensor, " C"]
    """class priors inside the unlabelled data; π in the case-control scenario"""
    unlabelled_share: Float[Tensor, ""]
    """the share of the population that the unlabelled data stand for; 1 in the case-control scenario"""
    lent: Float[Tensor, "C C"]
    """how often labelled data of class i stand in for other clients against class m [a_im]"""
    shares: Float[Tensor, " C1"]
    """shares of labelled examples of each class, and last of unlabelled ones, in the data; 0: take the batch's own"""


def client_task(
    client: Client, co_negatives: Float[Tensor, "C C"], clients: int, lent: Lent, expectation: Expectation
) -> Task:
    """Return the constants of a client's risk, from what it knows and the one sum over clients."""
    assert client.priors is not None
    labelled, unlabelled = client.labelled_counts, int((client.labels < 0).sum())
    inside, share = unlabelled_priors(client.priors, labelled, unlabelled, client.scenario)
    shares = torch.tensor([*labelled.tolist(), unlabelled]) / max(1, len(client.labels))
    return Task(
        positive=client.positive,
        priors=client.priors,
        unlabelled_priors=inside,
        unlabelled_share=share,
        lent=lent_weights(co_negatives, client.positive, clients, lent),
        shares=shares if expectation == "unbiased" else torch.zeros_like(shares),
    )


def plain_task(
    positive: Bool[Tensor, " C"], priors: Float[Tensor, " C"], lent: Float[Tensor, "C C"] | None = None
) -> Task:
    """Return the constants of a risk in the case-control scenario, where unlabelled data are the whole population."""
    count = len(priors)
    return Task(
        positive=positive,
        priors=priors,
        unlabelled_priors=priors,
        unlabelled_share=priors.new_ones(()),
        lent=priors.new_zeros(count, count) if lent is None else lent,
        shares=priors.new_zeros(count + 1),
    )
