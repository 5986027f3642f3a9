"""The geometric median of updates, by the smoothed Weiszfeld algorithm: RFA (Pillutla et al. 2022,
https://arxiv.org/abs/1912.13445).

    v⁺ = Σ_k β_k δ_k / Σ_k β_k,     β_k = (n_k/n) / max(ν, ‖v − δ_k‖),     v before the first step: the mean

It comes to the point with the least Σ_k (n_k/n) ‖v − δ_k‖, which fewer than half of the examples can't carry away.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedpu.aggregation.base import ServerState
from fedpu.aggregation.robust import Bucketed, Changes, Verdict, distrusted


class GeometricMedian(Bucketed):
    """The point with the least sum of distances to all updates."""

    name: Literal["geometric-median"] = "geometric-median"
    iterations: int = Field(50, ge=1, le=10**6, description="steps towards the median; fewer, where it stands still")
    smoothing: float = Field(
        1e-6, gt=0, le=1, description="for geometric-median: ν, the least distance that counts, over the mean distance"
    )

    def judge(self, state: ServerState, changes: Changes) -> Verdict:
        """Go from the mean towards the median until nothing moves any more."""
        vectors, shares = changes.vectors, changes.shares
        weights = shares
        centre = weights @ vectors
        for _ in range(self.iterations):
            distances = (vectors - centre).norm(dim=1)
            least = max(self.smoothing * float(distances.mean()), 1e-300)
            weights = shares / distances.clamp(min=least)
            weights = weights / weights.sum()
            before, centre = centre, weights @ vectors
            if float((centre - before).norm()) <= 1e-12 * float(centre.norm()):
                break
        return Verdict(centre, distrusted(weights, shares), {}, weights / shares.clamp(min=1e-300))
