"""FedSGD (McMahan et al. 2017): one full-batch gradient a client a round; the server takes the step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from fedpu.aggregation.base import Aggregation, ServerState, weighted_mean
from fedpu.engine import ModelState, Update, Work


class FedSGD(Aggregation):
    """w_{t+1} = w_t − η v_t with v_t = momentum · v_{t−1} + Σ_k (n_k/n) ∇R_k(w_t).

    ``local_epochs`` and ``batch_size`` have no meaning here. Momentum can only act on the server, since a client takes
    one step.
    """

    name: Literal["fedsgd"] = "fedsgd"

    def work(self, seed: int, round_: int, selected: list[int]) -> list[Work]:
        """Ask everyone for one plain step on all of its data, from which the gradient can be read."""
        lr = self.lr_at(round_)
        return [Work(client=k, round=round_, lr=lr, weight_decay=self.weight_decay) for k in selected]

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Take the server's step along the mean gradient; buffers, which have none, are averaged."""
        lr = self.lr_at(state.round)
        mean = weighted_mean(updates)
        model: ModelState = {}
        velocity: ModelState = {}
        for name, before in state.model.items():
            if name in state.buffers:
                model[name] = mean[name]
                continue
            gradient = (before.double() - mean[name].double()) / lr
            previous = state.momentum.get(name)
            velocity[name] = gradient if previous is None else self.momentum * previous + gradient
            model[name] = (before.double() - lr * velocity[name]).to(before.dtype)
        return replace(state, round=state.round + 1, model=model, momentum=velocity)
