"""The losses that the authors' released code computes, for comparison: not what the paper's equations say."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.risk.constants import RiskConstants, Terms
from fedpu.risk.expectation import labelled_mean, memberships, own_class
from fedpu.risk.federated import total


def released_risk(logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"], constants: RiskConstants) -> Terms:
    """The shipped loss: CE(labelled) + (1/C) mean_U Σ_{i∈P} s(p_i) − mean_labelled π_y s(p_y), s(p) = −log(1−p+1e-6).

    The term on labelled data against the negative classes and the lent term are missing, and the cross-entropy is not
    weighted by the priors. π are the priors inside U.
    """
    log_p = logits.log_softmax(dim=1)
    s = -torch.log(1 - log_p.exp() + 1e-6)
    p = constants.positive.to(logits.dtype)
    batch = memberships(labels, torch.zeros_like(constants.shares))  # its means are the batch's own
    return total(
        {
            "positive": labelled_mean(-own_class(log_p, labels), labels),
            "unlabelled": (batch.unlabelled @ (s @ p)) / logits.shape[1],
            "correction": -labelled_mean(own_class(constants.unlabelled_priors * s, labels), labels),
        }
    )


def released_older_risk(logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"], constants: RiskConstants) -> Terms:
    """The older loss left in the released code, with the cross-entropy beside it; s(p) = −log(1−p+0.01).

    CE(labelled) + (1/|P|) mean_U Σ_{i∈P} s(p_i) + (1/|N|) mean_labelled π_y Σ_{m∈N} s(p_m) − mean_labelled π_y s(p_y).
    """
    log_p = logits.log_softmax(dim=1)
    s = -torch.log(1 - log_p.exp() + 0.01)
    p = constants.positive.to(logits.dtype)
    n = 1 - p
    prior = constants.unlabelled_priors[labels.clamp(min=0)]
    batch = memberships(labels, torch.zeros_like(constants.shares))  # its means are the batch's own
    return total(
        {
            "positive": labelled_mean(-own_class(log_p, labels), labels),
            "unlabelled": (batch.unlabelled @ (s @ p)) / p.sum().clamp(min=1),
            "against-negative": labelled_mean(prior * (s @ n), labels) / n.sum().clamp(min=1),
            "correction": -labelled_mean(prior * own_class(s, labels), labels),
        }
    )
