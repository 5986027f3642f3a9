"""SAGE (Liu et al. 2025, https://arxiv.org/abs/2503.13227): what the received model says corrects what a client learns.

With the posteriors p of the network at this step on a weak view and g of the received model, ŷ and ĝ their likeliest
classes, and e_c the vector with a one for class c, a client minimises

    mean over L of −log p_y(w(x))   +   λ_u · mean over U of 1[max p ≥ τ or max g ≥ τ] · KL(t(x) ‖ p(s(x))),

    t = λ e_ŷ + (1 − λ) e_ĝ   where max p ≥ τ,   e_ĝ   elsewhere,      λ = exp(−κ · |max p − max g|).

The further the two are apart in confidence, the more the received model counts: a client that trains on few data is
sure too soon. Neither targets nor masks have a gradient. τ = .95, λ_u = 1, κ = ln 2 / .05 (a gap of five points halves
the client's say) and two unlabelled examples for each labelled one are the paper's.

g is taken of the images as they are, once before the first step; its authors take it of the weak views. The two are the
same where ``augmentation.weak`` is empty.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from fedpu.method.base import Batch, ClientRound, Forward, Preparation
from fedpu.method.consistency import Consistency, share_where
from fedpu.risk import RiskConstants, Terms

RECEIVED = "received"


class SAGE(Consistency):
    """Cross-entropy on labelled data, and on strong views towards targets that mix a client's and everybody's."""

    name: Literal["sage"] = "sage"
    trained_on: ClassVar[str] = "labelled data, and local targets that the received model corrects (SAGE)"
    unlabelled_ratio: float = Field(
        2.0, gt=0, description="unlabelled examples of a batch for each labelled one (μ), as far as whole numbers go"
    )
    confidence: float = Field(
        0.95, ge=0, le=1, description="largest posterior from which an unlabelled example counts (τ)"
    )
    sensitivity: float = Field(
        math.log(2) / 0.05, ge=0, description="for sage: how fast a gap in confidence takes the client's say away (κ)"
    )

    def prepare(self, now: ClientRound) -> Preparation:
        """Ask the received model for its posteriors on all examples."""
        return Preparation({RECEIVED: now.outputs().softmax(dim=1).float()})

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the loss on labelled and on unlabelled examples."""
        labelled, hidden = batch.labels >= 0, batch.labels < 0
        weak, strong = forward(batch.views["weak"]), forward(batch.views["strong"])
        seen = weak if self.target_view == "weak" else forward(batch.views["clean"])
        local, received = seen[hidden].detach().softmax(dim=1), batch.examples[RECEIVED][hidden]
        losses = divergence(self.targets(local, received), strong[hidden].log_softmax(dim=1))
        sure = (local.amax(dim=1) >= self.confidence) | (received.amax(dim=1) >= self.confidence)
        terms: Terms = {
            "labelled": self.labelled_loss(weak[labelled], batch.labels[labelled], batch.round),
            "unlabelled": self.unlabelled_weight * share_where(losses, sure),
        }
        return terms | {"total": terms["labelled"] + terms["unlabelled"]}

    def targets(self, local: Float[Tensor, "n C"], received: Float[Tensor, "n C"]) -> Float[Tensor, "n C"]:
        """Return t."""
        own, theirs = (torch.nn.functional.one_hot(p.argmax(dim=1), p.shape[1]).to(p.dtype) for p in (local, received))
        gap = (local.amax(dim=1) - received.amax(dim=1)).abs()
        say = torch.where(local.amax(dim=1) >= self.confidence, (-self.sensitivity * gap).exp(), 0)[:, None]
        return say * own + (1 - say) * theirs

    def unlabelled_loss(self, target_logits: Float[Tensor, "n C"], logits: Float[Tensor, "n C"]) -> Float[Tensor, ""]:
        """Return the loss where nothing but the client's own network speaks."""
        p = target_logits.softmax(dim=1)
        losses = divergence(self.targets(p, p), logits.log_softmax(dim=1))
        return share_where(losses, p.amax(dim=1) >= self.confidence)


def divergence(targets: Float[Tensor, "n C"], log_p: Float[Tensor, "n C"]) -> Float[Tensor, " n"]:
    """Return KL(t ‖ p) of each row; a class that has no share in t adds nothing."""
    own: Float[Tensor, " n"] = (torch.special.xlogy(targets, targets) - targets * log_p).sum(dim=1)
    return own
