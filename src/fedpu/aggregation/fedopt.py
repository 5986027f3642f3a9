"""Adaptive optimisers on the server (Reddi et al. 2021, https://arxiv.org/abs/2003.00295): what FedAdam and FedYogi
share.

Clients train as in FedAvg. What they have changed in the mean is taken for a gradient that points backwards, and the
server steps along it with a momentum and a step size for every parameter:

    Δ = mean w_k − w_t,     m⁺ = β₁ m + (1 − β₁) Δ,     v⁺ as the optimiser says,     v before the first round: τ²
    w_{t+1} = w_t + server_lr · m⁺ / (√v⁺ + τ)

All operations are by entry, and as in the paper m and v are not corrected for their start.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedpu.aggregation.base import Aggregation, ServerState, mean_of
from fedpu.round import Tensors, Update, prefixed

FIRST, SECOND = "first", "second"
"""names of m and v in the server's state"""


class ServerOptimiser(Aggregation):
    """FedAvg's clients, and an optimiser of the server's own."""

    takes: ClassVar[Literal["each", "mean"]] = "mean"
    server_lr: float = Field(0.03, gt=0, le=1e6, description="step of the server along what clients have changed")
    beta_1: float = Field(0.9, ge=0, lt=1, description="share of the first moment that is kept")
    beta_2: float = Field(0.99, ge=0, lt=1, description="share of the second moment that is kept")
    tau: float = Field(1e-3, gt=0, le=1e6, description="τ, the larger the less steps differ by parameter")

    @abstractmethod
    def second_moment(self, before: Tensor, square: Tensor) -> Tensor:
        """Return v⁺ of v and Δ²."""

    def start_server(self, state: ServerState) -> Tensors:
        """Return m = 0 and v = τ²."""
        zeros = {name: torch.zeros_like(value).double() for name, value in state.parameters.items()}
        return prefixed({FIRST: zeros, SECOND: {name: value + self.tau**2 for name, value in zeros.items()}})

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Take the optimiser's step; buffers, which have no gradient, are averaged."""
        model = mean_of(updates).of("model")
        moments: Tensors = {}
        for name, before in state.parameters.items():
            change = model[name].double() - before.double()
            first = self.beta_1 * state.extras[f"{FIRST}.{name}"] + (1 - self.beta_1) * change
            second = self.second_moment(state.extras[f"{SECOND}.{name}"], change.square())
            model[name] = (before.double() + self.server_lr * first / (second.sqrt() + self.tau)).to(before.dtype)
            moments |= {f"{FIRST}.{name}": first, f"{SECOND}.{name}": second}
        return state.after(model, **moments)
