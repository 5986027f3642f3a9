"""FedProx (Li et al. 2020): a proximal term on every client, and stragglers whose partial work still counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from fedpu.aggregation.fedavg import Averaging
from fedpu.randomness import numpy_generator
from fedpu.round import Broadcast, Correction, Tensors, Work


class FedProx(Averaging):
    """Clients minimise R_k(w) + ½μ‖w − w_t‖²; some of them do fewer local epochs than asked."""

    name: Literal["fedprox"] = "fedprox"
    mu: float = Field(0.1, ge=0, le=1e6, description="for fedprox: weight μ of the proximal term")
    stragglers: float = Field(
        0.0,
        ge=0,
        le=1,
        description="for fedprox: share of a round's clients that do less than asked (the paper: 0, .5, .9)",
    )

    def work(self, seed: int, round_: int, selected: list[int]) -> list[Work]:
        """Ask for FedAvg's work, and draw who manages how much of it.

        A straggler does a whole number of epochs between 1 and one less than asked, drawn evenly; where only one epoch
        was asked for, an even share of its batches.
        """
        rng = numpy_generator(seed, "stragglers", round_)
        slow = set(rng.permutation(selected)[: round(self.stragglers * len(selected))].tolist())
        return [
            replace(piece, share=self._share(rng) if piece.client in slow else 1.0)
            for piece in super().work(seed, round_, selected)
        ]

    def correction(self, sent: Broadcast, work: Work, state: Tensors) -> Correction:
        """Return the gradient μ(w − w_t) of the proximal term."""
        return Correction(proximal=self.mu)

    def _share(self, rng: np.random.Generator) -> float:
        if self.local_epochs == 1:
            return float(rng.random())
        return float(rng.integers(1, self.local_epochs)) / self.local_epochs
