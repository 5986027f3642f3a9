"""FedSGD (McMahan et al. 2017): one full-batch gradient a client a round; the server takes the step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from fedpu.aggregation.base import Aggregation, ServerState, weighted_mean
from fedpu.engine import ModelState, Update, Work


class FedSGD(Aggregation):
    """w_{t+1} = w_t − η v_t with v_t = momentum · v_{t−1} + g_t, where g_t = Σ_k (n_k/n) ∇R_k(w_t).

    ``local_epochs`` and ``batch_size`` have no meaning here. Momentum can only act on the server, since a client takes
    one step.
    """

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
        gradient = {
            name: (before.double() - mean[name].double()) / lr
            for name, before in state.model.items()
            if name not in state.buffers
        }
        if self.clip:
            length = float(torch.cat([part.flatten() for part in gradient.values()]).norm())
            scale = self.clip / max(length, self.clip)
            gradient = {name: part * scale for name, part in gradient.items()}
        model: ModelState = {}
        velocity: ModelState = {}
        for name, before in state.model.items():
            if name in state.buffers:
                model[name] = mean[name]
                continue
            previous = state.momentum.get(name)
            velocity[name] = gradient[name] if previous is None else self.momentum * previous + gradient[name]
            model[name] = (before.double() - lr * velocity[name]).to(before.dtype)
        return replace(state, round=state.round + 1, model=model, momentum=velocity)
