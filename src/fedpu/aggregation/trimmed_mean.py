"""The coordinate-wise trimmed mean (Yin et al. 2018, https://arxiv.org/abs/1803.01498).

In every coordinate the f largest and the f smallest of the m values are left out, and the plain mean of the others is
taken: an order knows no weights, so that clients count alike whatever their numbers of examples.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from fedpu.aggregation.base import ServerState
from fedpu.aggregation.robust import Bucketed, Changes, Verdict


class TrimmedMean(Bucketed):
    """The mean of every parameter, without its extremes."""

    name: Literal["trimmed-mean"] = "trimmed-mean"
    liars: float = Field(0.2, ge=0, lt=0.5, description="share of a round's updates that may be lies")

    def judge(self, state: ServerState, changes: Changes) -> Verdict:
        """Leave out the extremes of every coordinate."""
        count = len(changes.vectors)
        extremes = int(self.liars * count + 1e-9)
        ordered, rows = changes.vectors.sort(dim=0)
        kept = slice(extremes, count - extremes)
        # Where all keep the same part of their coordinates nobody is an extreme, whatever that part is.
        counted = torch.bincount(rows[kept].flatten(), minlength=count) / max(ordered[kept].numel() / count, 1)
        return Verdict(ordered[kept].mean(dim=0), {}, {}, counted.double())
