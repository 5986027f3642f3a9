"""FedSGD (McMahan et al. 2017): one full-batch gradient per client and round; the server takes the step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from pydantic import Field

from fedpu.aggregation.base import Aggregation, ServerState, weighted_mean
from fedpu.round import Tensors, Update, Work

VELOCITY = "velocity"


class FedSGD(Aggregation):
    """w_{t+1} = w_t − η v_t with v_t = momentum · v_{t−1} + g_t, where g_t = Σ_k (n_k/n) ∇R_k(w_t).

    ``local_epochs`` and ``batch_size`` have no meaning here. Momentum can only act on the server, since a client takes
    one step.
    """

    takes: ClassVar[Literal["each", "mean"]] = "mean"
    name: Literal["fedsgd"] = "fedsgd"
    clip: float = Field(
        0.0, ge=0, description="for fedsgd: a mean gradient g_t that is longer than this is cut to it; 0: never"
    )

    def work(self, seed: int, round_: int, selected: list[int]) -> list[Work]:
        """Ask everyone for one plain step on all of its data, from which the gradient can be read."""
        lr = self.lr_at(round_)
        return [Work(client=k, round=round_, lr=lr, weight_decay=self.weight_decay) for k in selected]

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Take the server's step along the mean gradient; buffers, which have none, are averaged."""
        lr = self.lr_at(state.round)
        mean = weighted_mean(updates)
        gradient = {name: (before.double() - mean[name].double()) / lr for name, before in state.parameters.items()}
        if self.clip:
            length = float(torch.cat([part.flatten() for part in gradient.values()]).norm())
            scale = self.clip / max(length, self.clip)
            gradient = {name: part * scale for name, part in gradient.items()}
        model = dict(mean)
        velocity: Tensors = {}
        for name, part in gradient.items():
            previous = state.extras.get(f"{VELOCITY}.{name}")
            velocity[f"{VELOCITY}.{name}"] = new = part if previous is None else self.momentum * previous + part
            model[name] = (state.model[name].double() - lr * new).to(state.model[name].dtype)
        return state.after(model, **velocity)
