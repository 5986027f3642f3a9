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
    def of_one(self) -> tuple[Float[Tensor, " C"], Float[Tensor, ""]]:
        """E_i[1] for every class and E_U[1], as the batch has them: what a constant under an expectation becomes."""
        return self.labelled.sum(dim=1), self.unlabelled.sum()


def memberships(labels: Int64[Tensor, " n"], shares: Float[Tensor, " C1"]) -> Batch:
    """Return the averaging weights of a batch.

    ``shares`` are the shares of labelled examples of each class, and last of unlabelled examples, in the client's
    data. Where a share is known, the sum over the batch's members is divided by the number of them to be expected: the
    estimate is unbiased, and its mean over an epoch is the value on all data. Where it is zero, by the number
    that the batch has: an expectation over nothing is then zero, and its term is left out.
    """
    groups = torch.arange(len(shares), device=labels.device)
    number = torch.where(labels < 0, len(shares) - 1, labels)
    member = (number[None, :] == groups[:, None]).to(shares.dtype)
    expected = shares * len(labels)
    weights = member / torch.where(shares > 0, expected, member.sum(dim=1).clamp(min=1))[:, None]
    return Batch(labelled=weights[:-1], unlabelled=weights[-1])


def labelled_mean(values: Float[Tensor, " n"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the mean over all labelled examples, zero when there is none."""
    labelled = (labels >= 0).to(values.dtype)
    return (values * labelled).sum() / labelled.sum().clamp(min=1)


def own_class(values: Float[Tensor, "n C"], labels: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return each example's value at its own label (at class 0 for unlabelled ones, to be masked by the caller)."""
    return values.gather(1, labels.clamp(min=0)[:, None]).squeeze(1)
