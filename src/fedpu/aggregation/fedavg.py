"""Federated averaging (McMahan et al. 2017): Algorithm 1 of the paper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from fedpu.aggregation.base import Aggregation, ServerState, weighted_mean
from fedpu.round import Update


class Averaging(Aggregation):
    """Clients train for some epochs, and w_{t+1} = Σ_k (n_k/n) w_{t+1}^k."""

    takes: ClassVar[Literal["each", "mean"]] = "mean"

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Average the clients' parameters, weighted by their numbers of examples."""
        return state.after(weighted_mean(updates))


class FedAvg(Averaging):
    """Federated averaging, the paper's default."""

    name: Literal["fedavg"] = "fedavg"
