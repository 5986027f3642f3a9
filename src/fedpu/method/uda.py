"""Unsupervised data augmentation (Xie et al. 2020), on each client: strong views are held to sharpened posteriors.

With the network's logits z and posteriors p at this step, a batch of labelled examples L and unlabelled ones U, and a
weak and a strong view w(x), s(x) of each example, a client minimises

    mean over L_t of −log p_y(w(x))   +   λ_u · mean over U of 1[max_j p_j(w(x)) > β] · KL(q(x) ‖ p(s(x))),

    q(x) = softmax(z(w(x)) / T),      L_t = {(x, y) in L: p_y(w(x)) ≤ η_t}.

Neither q nor the indicators have a gradient. L_t is training-signal annealing: a labelled example of which the network
is surer than η_t teaches nothing for the time being, so that few labels are not learned by heart while the unlabelled
data have not spoken yet. With C classes, in round t of R (counted from 0),

    η_t = α_t (1 − 1/C) + 1/C,      α_t = t/R (linear),   exp(5 (t/R − 1)) (exp),   1 − exp(−5 t/R) (log);

from round R on, or with ``off``, all labels count. λ_u = 1, T = .4 and β = .8 are the paper's for CIFAR-10, and its
authors' code has five unlabelled examples for each labelled one.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from fedpu.method.consistency import Consistency, cross_entropy, mean_where, share_where

SCALE = 5
"""of the exponential and the logarithmic schedule: they start, or end, within exp(−5) of where they should"""


class UDA(Consistency):
    """Annealed cross-entropy on labelled data, and sharpened targets for strong views of unlabelled data."""

    name: Literal["uda"] = "uda"
    trained_on: ClassVar[str] = "labelled data, and sharpened targets for the rest (UDA)"
    unlabelled_ratio: float = Field(
        5.0, gt=0, description="unlabelled examples of a batch for each labelled one (μ), as far as whole numbers go"
    )
    confidence: float = Field(
        0.8, ge=0, le=1, description="largest posterior above which an unlabelled example counts (β)"
    )
    temperature: float = Field(0.4, gt=0, description="for uda: what logits are divided by in targets (T)")
    annealing: Literal["off", "exp", "linear", "log"] = Field(
        "off",
        description="for uda: how the threshold rises above which labelled examples do not count yet: off (all labels "
        "count), late (exp), evenly (linear) or early (log)",
    )
    annealing_rounds: int = Field(
        200,
        ge=1,
        le=10**7,
        description="for uda: the round from which all labels count (R). A method is not told how many rounds there "
        "will be: set it to aggregation.rounds, whose default it has",
    )

    def threshold(self, round_: int, classes: int) -> float:
        """Return η_t: labelled examples with a larger posterior of their label do not count in this round."""
        done = round_ / self.annealing_rounds
        if self.annealing == "off" or done >= 1:
            return 1.0
        risen = {
            "linear": done,
            "exp": math.exp(SCALE * (done - 1)),
            "log": 1 - math.exp(-SCALE * done),
        }[self.annealing]
        return risen * (1 - 1 / classes) + 1 / classes

    def labelled_loss(
        self, logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"], round_: int
    ) -> Float[Tensor, ""]:
        """Return the cross-entropy of the labelled examples that the network is not too sure of yet."""
        losses = cross_entropy(logits, labels)
        return mean_where(losses, (-losses.detach()).exp() <= self.threshold(round_, logits.shape[1]))

    def unlabelled_loss(self, target_logits: Float[Tensor, "n C"], logits: Float[Tensor, "n C"]) -> Float[Tensor, ""]:
        """Return the divergence of strong views from sharpened targets, where the network is sure enough."""
        targets = (target_logits / self.temperature).log_softmax(dim=1)
        divergence = (targets.exp() * (targets - logits.log_softmax(dim=1))).sum(dim=1)
        sure = target_logits.softmax(dim=1).amax(dim=1) > self.confidence
        return share_where(divergence, sure)
