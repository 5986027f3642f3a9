"""Empirical expectations over a batch: E_i over the labelled examples of class i, E_U over the unlabelled ones."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor


class Batch(NamedTuple):
    """A batch's membership: whose mean each example is part of. Nothing is sliced, so that batches can be stacked."""

    labelled: Float[Tensor, "C n"]
    """row i averages over the labelled examples of class i; zero where the batch has none"""
    unlabelled: Float[Tensor, " n"]
    """averages over the unlabelled examples; zero where the batch has none"""

    @property
    def has_class(self) -> Float[Tensor, " C"]:
        """1 for classes with a labelled example in the batch, else 0."""
        return (self.labelled.sum(dim=1) > 0).to(self.labelled.dtype)

    @property
    def has_unlabelled(self) -> Float[Tensor, ""]:
        """1 if the batch has an unlabelled example, else 0."""
        return (self.unlabelled.sum() > 0).to(self.unlabelled.dtype)


def memberships(labels: Int64[Tensor, " n"], classes: int, dtype: torch.dtype) -> Batch:
    """Return the averaging weights of a batch. An expectation over nothing is zero: its term is left out."""
    member = (labels[None, :] == torch.arange(classes, device=labels.device)[:, None]).to(dtype)
    hidden = (labels < 0).to(dtype)
    return Batch(
        labelled=member / member.sum(dim=1, keepdim=True).clamp(min=1),
        unlabelled=hidden / hidden.sum().clamp(min=1),
    )


def labelled_mean(values: Float[Tensor, " n"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the mean over all labelled examples, zero when there is none."""
    labelled = (labels >= 0).to(values.dtype)
    return (values * labelled).sum() / labelled.sum().clamp(min=1)


def own_class(values: Float[Tensor, "n C"], labels: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return each example's value at its own label (at class 0 for unlabelled ones, to be masked by the caller)."""
    return values.gather(1, labels.clamp(min=0)[:, None]).squeeze(1)
