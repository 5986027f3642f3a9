"""Multi-Krum (Blanchard et al. 2017, https://arxiv.org/abs/1703.02757): the mean of the updates with near neighbours.

Of m updates, f of which may lie, each gets as its score the sum of the squared distances to its m − f − 2 nearest
others; the m − f with the least scores are averaged, weighted by their examples.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from fedpu.aggregation.base import ServerState
from fedpu.aggregation.robust import Bucketed, Changes, Verdict


class MultiKrum(Bucketed):
    """Leaves the updates out that have the fewest near others."""

    name: Literal["multi-krum"] = "multi-krum"
    liars: float = Field(0.2, ge=0, lt=0.5, description="share of a round's updates that may be lies")

    def judge(self, state: ServerState, changes: Changes) -> Verdict:
        """Average the updates with the least scores."""
        vectors, shares = changes.vectors, changes.shares
        count = len(vectors)
        liars = int(self.liars * count + 1e-9)
        near = min(max(count - liars - 2, 1), count - 1)
        # Not by products, in which the difference of near neighbours would be lost.
        squares = torch.stack([(vectors - one).square().sum(dim=1) for one in vectors])
        scores = squares.sort(dim=1).values[:, 1 : 1 + near].sum(dim=1)
        kept, cut = scores.argsort(stable=True).split([count - liars, liars])
        kept = kept.sort().values
        told = dict.fromkeys(sorted(cut.tolist()), "it has fewer near neighbours than the others: left out")
        counted = torch.zeros_like(shares).index_fill(0, kept, 1)
        return Verdict((shares[kept] / shares[kept].sum()) @ vectors[kept], told, {}, counted)
