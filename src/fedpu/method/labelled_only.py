"""Baseline-1 made as strong as labelled data alone allow: as many steps as the others, and logits that know the client.

The paper's Baseline-1 (``positive-only``) goes through the labelled examples once where other methods go through all
data, and every client pushes down the classes that it happens not to label. Here a client takes as many steps in a
round as it would on all of its data, and its logits can be adjusted by the shares of the classes among its labels, as a
model of all classes would have to be on such a client:

    L_k = mean over labelled examples of −log softmax(z + log q_k)_y        q_k(y) = (1 − s) n_k(y) / Σ_j n_k(j) + s / C

with n_k(y) the labelled examples of class y and s the smoothing. s = 1 is plain cross-entropy. With s = 0 a client
compares only the classes that it labels, and one that labels a single class learns nothing at all: its label is certain
before it has looked at an example.

s = 1 is the default because the validation score chose it (``docs/validation.md``), on the quickstart and on clients
that label two classes each.
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


class LabelledOnly(Method):
    """Cross-entropy on the labelled examples, with the steps of a method on all data and the client's own shares."""

    name: Literal["labelled-only"] = "labelled-only"
    uses_unlabelled: ClassVar[bool] = False
    trained_on: ClassVar[str] = "labelled data alone, as many steps (a stronger Baseline-1)"
    end_of_gap: ClassVar[Literal["lower", "upper"] | None] = "lower"
    smoothing: float = Field(
        1.0,
        ge=0,
        le=1,
        description="for labelled-only: how far the class shares by which a client's logits are adjusted are moved to "
        "even ones (1: plain cross-entropy; 0: only the classes that it labels are compared)",
    )

    def constants(self, summary: ClassSummary, co_negatives: Float[Tensor, "C C"], clients: int) -> RiskConstants:
        """Return the client's class shares as its logits have them, in the place of priors."""
        return plain_constants(summary.positive, self.shares_of(summary.labelled))

    def shares_of(self, labelled: Int64[Tensor, "*K C"]) -> Float[Tensor, "*K C"]:
        """Return q from the numbers of labelled examples of each class."""
        even = torch.full(labelled.shape, 1 / labelled.shape[-1])
        total = labelled.sum(dim=-1, keepdim=True)
        shares = torch.where(total > 0, labelled / total.clamp(min=1), even)
        return (1 - self.smoothing) * shares + self.smoothing * even

    def batches(
        self, labels: Int64[Tensor, " r"], work: Work, generator: Callable[[int], torch.Generator]
    ) -> list[Int64[Tensor, " _"]]:
        """Return batches of labelled examples, as many as all of the client's entries would give."""
        return repeated_batches((labels >= 0).nonzero()[:, 0], len(labels), work, generator)

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the cross-entropy of the adjusted logits as its only term."""
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
        adjusted = (logits + constants.priors.log()[..., None, :]).log_softmax(dim=-1)
        own = adjusted.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        # A row that only fills a batch up may name a class that the client does not label, whose logarithm is −∞.
        loss = -torch.where(known, own, 0).sum(dim=-1) / known.sum(dim=-1).clamp(min=1)
        return {"positive": loss, "total": loss}
