"""Centred clipping (Karimireddy et al. 2021, https://arxiv.org/abs/2012.10333): updates are cut around the last one.

    v ← v + Σ_k (n_k/n) (δ_k − v) min(1, τ / ‖δ_k − v‖),     some times;     v before the first step: β v of last round

A liar moves v by n_k/n · τ at most. The paper has a fixed τ and momentum on the clients; here τ is a multiple of the
round's median distance ‖δ_k − v‖, so that it needs no choosing while updates get shorter, and the momentum is the
server's, of which v starts from a share β.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from fedpu.aggregation.base import ServerState
from fedpu.aggregation.robust import Bucketed, Changes, Verdict, flat
from fedpu.round import Tensors

CENTRE = "centre"


class CentredClipping(Bucketed):
    """Every update is cut to the round's median distance from where the last round went."""

    name: Literal["centred-clipping"] = "centred-clipping"
    radius: float = Field(1.0, gt=0, le=1e6, description="for centred-clipping: τ, in median distances")
    memory: float = Field(0.9, ge=0, lt=1, description="share β of what the server remembers that is kept")
    iterations: int = Field(3, ge=1, le=10**6, description="steps towards the median; fewer, where it stands still")

    def start_server(self, state: ServerState) -> Tensors:
        """Return v = 0."""
        return {CENTRE: torch.zeros_like(flat(state.model, state.model))}

    def judge(self, state: ServerState, changes: Changes) -> Verdict:
        """Step from the last centre by what is left of the updates when they are cut around it."""
        vectors, shares = changes.vectors, changes.shares
        centre = self.memory * state.extras[CENTRE]
        kept = torch.ones_like(shares)
        for _ in range(self.iterations):
            apart = vectors - centre
            distances = apart.norm(dim=1)
            kept = (self.radius * distances.quantile(0.5) / distances.clamp(min=1e-300)).clamp(max=1)
            centre = centre + (shares * kept) @ apart
        told = {
            row: f"its update is far from the centre: it was cut to {share:.2f} of its distance"
            for row, share in enumerate(kept.tolist())
            if share < 0.5
        }
        return Verdict(centre, told, {CENTRE: centre}, kept)
