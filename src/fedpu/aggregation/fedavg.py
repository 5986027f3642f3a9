"""Federated averaging (McMahan et al. 2017): Algorithm 1 of the paper."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from fedpu.aggregation.base import Aggregation, ServerState, weighted_mean
from fedpu.engine import Update, Work


class Averaging(Aggregation):
    """Clients train for some epochs, and w_{t+1} = Σ_k (n_k/n) w_{t+1}^k."""

    def work(self, seed: int, round_: int, selected: list[int]) -> list[Work]:
        """Ask everyone for the same number of local epochs."""
        return [
            Work(
                client=k,
                round=round_,
                lr=self.lr_at(round_),
                epochs=self.local_epochs,
                batch_size=self.batch_size,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
            )
            for k in selected
        ]

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Average the clients' parameters, weighted by their numbers of examples."""
        return replace(state, round=state.round + 1, model=weighted_mean(updates))


class FedAvg(Averaging):
    """Federated averaging, the paper's default."""

    name: Literal["fedavg"] = "fedavg"
