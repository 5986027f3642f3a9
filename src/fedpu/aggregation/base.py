"""The contract of an aggregation: whom the server asks, what it asks of them, and how it combines what comes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from fedpu.engine import ModelState, Update, Work, copy_state
from fedpu.errors import TrainingError
from fedpu.randomness import numpy_generator
from fedpu.registry import Settings


@dataclass(frozen=True, eq=False)
class ServerState:
    """All that the server keeps: rounds done, the global model, and a momentum for rules that have one.

    ``buffers`` names the entries of the model that are no parameters, such as BatchNorm's running statistics.
    """

    round: int
    model: ModelState
    momentum: ModelState = field(default_factory=dict)
    buffers: frozenset[str] = frozenset()
    co_negatives: Float[Tensor, "C C"] | None = None
    """the sum of negative classes, where it was formed privately: once, since every time would tell more"""

    @classmethod
    def initial(cls, network: nn.Module) -> ServerState:
        """Return the state before the first round."""
        return cls(0, copy_state(network), buffers=frozenset(name for name, _ in network.named_buffers()))


class Aggregation(Settings, ABC):
    """The settings of training that all aggregations share; the defaults are the paper's."""

    rounds: int = Field(200, ge=1, le=10**7, description="communication rounds T")
    local_epochs: int = Field(1, ge=1, le=10**6, description="passes over its data that a client makes in a round")
    batch_size: int = Field(100, ge=1, le=10**9, description="local batch size")
    lr: float = Field(0.01, gt=0, le=1e6, description="learning rate of the first round")
    lr_decay: float = Field(0.995, gt=0, le=1, description="factor on the learning rate from round to round")
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum of SGD (on the server for fedsgd)")
    weight_decay: float = Field(0.0, ge=0, le=1e6, description="L2 penalty of SGD")
    participation: float = Field(1.0, gt=0, le=1, description="share of the clients that is drawn for a round")

    def lr_at(self, round_: int) -> float:
        """Return the learning rate of a round, counted from 0."""
        return self.lr * self.lr_decay**round_

    def select(self, seed: int, round_: int, clients: int) -> list[int]:
        """Return the clients of a round in increasing order; the draw depends on (seed, round) alone."""
        if self.participation == 1:
            return list(range(clients))
        count = max(1, round(self.participation * clients))
        drawn = numpy_generator(seed, "selection", round_).choice(clients, count, replace=False)
        return sorted(int(k) for k in drawn)

    @abstractmethod
    def work(self, seed: int, round_: int, selected: list[int]) -> list[Work]:
        """Return what is asked of each selected client."""

    @abstractmethod
    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Return the server's state after a round."""


def weighted_mean(updates: Iterable[Update]) -> ModelState:
    """Return Σ_k (n_k/n) w_k as a running sum that never holds all updates.

    BatchNorm's running means and variances are buffers of floats and are averaged like parameters; counters of
    batches are whole numbers and take the largest value.
    """
    total = 0
    sums: ModelState = {}
    dtypes: dict[str, torch.dtype] = {}
    for update in updates:
        total += update.examples
        for name, value in update.model.items():
            dtypes[name] = value.dtype
            if not value.is_floating_point():
                sums[name] = torch.maximum(sums[name], value) if name in sums else value
            elif name in sums:
                sums[name].add_(value.double(), alpha=update.examples)
            else:
                sums[name] = value.double() * update.examples
    if total == 0:
        raise TrainingError("No client returned an update in this round.")
    return {
        name: (value / total).to(dtypes[name]) if dtypes[name].is_floating_point else value
        for name, value in sums.items()
    }
