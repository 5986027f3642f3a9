"""FedLC (Zhang et al. 2022, https://arxiv.org/abs/2209.00189): a margin for the classes of which a client has little.

With n_k(y) labelled examples of class y on client k, it minimises

    mean over labelled examples of −log softmax(z − m_k)_y,      m_k(y) = τ · n_k(y)^(−1/4).

In training the logit of a rare class is taken down, so that the network has to learn it with a margin. A class that the
client does not label at all is left out of the comparison: n is taken as 1e-8 there, as its authors do, which makes
m = 100 τ. τ = 1 is the paper's.

Where a client labels as many examples of every class, all margins are equal and this is plain cross-entropy. The paper
has no unlabelled data, and none are used; a client takes as many steps in a round as it would on all of its data, as
``labelled-only`` does, whose loss has the logarithms of class shares in the place of margins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from fedpu.labelling import ClassSummary
from fedpu.method.base import Batch, Forward, Method
from fedpu.method.batches import repeated_batches
from fedpu.risk import RiskConstants, Terms, plain_constants
from fedpu.round import Tensors, Work

ABSENT = 1e-8
"""examples that a class counts with of which there are none"""


class FedLC(Method):
    """Cross-entropy on the labelled examples, with logits taken down by each class's margin."""

    name: Literal["fedlc"] = "fedlc"
    uses_unlabelled: ClassVar[bool] = False
    trained_on: ClassVar[str] = "labelled data alone, with margins for rare classes (FedLC)"
    margin: float = Field(1.0, ge=0, description="for fedlc: margin of a class with one labelled example (τ)")

    def constants(self, summary: ClassSummary, co_negatives: Float[Tensor, "C C"], clients: int) -> RiskConstants:
        """Return the client's margins, in the place of priors."""
        return plain_constants(summary.positive, self.margin * summary.labelled.clamp(min=ABSENT) ** -0.25)

    def batches(
        self, labels: Int64[Tensor, " r"], work: Work, generator: Callable[[int], torch.Generator]
    ) -> list[Int64[Tensor, " _"]]:
        """Return batches of labelled examples, as many as all of the client's entries would give."""
        return repeated_batches((labels >= 0).nonzero()[:, 0], len(labels), work, generator)

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the cross-entropy of the calibrated logits as its only term."""
        return self.stacked(forward(batch.inputs), batch.labels, batch.examples, constants)

    def stacked(
        self,
        logits: Float[Tensor, "*K n C"],
        labels: Int64[Tensor, "*K n"],
        examples: Tensors,
        constants: RiskConstants,
    ) -> Terms:
        """Return the mean over the labelled rows of each batch."""
        known = labels >= 0
        calibrated = (logits - constants.priors[..., None, :]).log_softmax(dim=-1)
        own = calibrated.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        loss = -(own * known).sum(dim=-1) / known.sum(dim=-1).clamp(min=1)
        return {"positive": loss, "total": loss}
