"""FedDyn (Acar et al. 2021, https://arxiv.org/abs/2111.04263): a dynamic regulariser on every client.

Client k keeps g_k, its estimate of its own gradient at the optimum, and minimises in every round
R_k(w) − ⟨g_k, w⟩ + ½α‖w − w_t‖², whose optimum moves towards that of the sum over clients:

    client, every step:     gradient − g_k + α(w − w_t)
    client, at the end:     g_k⁺ = g_k − α(w_k − w_t)
    server:                 h⁺ = h − α · (|S|/K) · mean(w_k − w_t)
                            w_{t+1} = mean w_k − h⁺/α

S are the clients of the round and K is the number of all clients; g_k and h start with zeros. Means over clients have
the weights n_k/n of the server's objective, so that h stays Σ_k (n_k/n) g_k; with equal n_k they are the paper's.

−h/α is the sum of everything that clients have moved so far, whatever α is. The more local steps a round has and the
larger α is, the sooner g_k balances it; with few steps and a small α the server runs ahead of its clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from pydantic import Field

from fedpu.aggregation.base import Aggregation, ServerState, mean_of
from fedpu.round import Broadcast, Correction, Descent, Ending, Tensors, Update, Work


class FedDyn(Aggregation):
    """Local training on a risk that is tilted and held near the global model.

    The server keeps h and a client g_k, both by the names of the parameters; nothing travels but models.
    """

    takes: ClassVar[Literal["each", "mean"]] = "mean"
    name: Literal["feddyn"] = "feddyn"
    alpha: float = Field(0.1, gt=0, le=1e6, description="for feddyn: weight α of the dynamic regulariser")

    def start_server(self, state: ServerState) -> Tensors:
        """Return h = 0."""
        return {name: torch.zeros_like(value).double() for name, value in state.parameters.items()}

    def start_client(self, parameters: Tensors) -> Tensors:
        """Return g_k = 0."""
        return {name: torch.zeros_like(value) for name, value in parameters.items()}

    def correction(self, sent: Broadcast, work: Work, state: Tensors) -> Correction:
        """Return α(w − w_t) − g_k."""
        return Correction(proximal=self.alpha, offset={name: -own for name, own in state.items()})

    def end_client(
        self, sent: Broadcast, work: Work, state: Tensors, start: Tensors, trained: Tensors, descent: Descent
    ) -> Ending:
        """Keep g_k⁺."""
        return Ending({}, {name: own - self.alpha * (trained[name] - start[name]) for name, own in state.items()})

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Move h by the part of the clients that took part, and the model by it; buffers are averaged."""
        mean = mean_of(updates)
        model, sums = mean.of("model"), {}
        share = mean.clients / state.clients
        for name, before in state.parameters.items():
            moved = model[name].double() - before.double()
            sums[name] = state.extras[name] - self.alpha * share * moved
            model[name] = (model[name].double() - sums[name] / self.alpha).to(before.dtype)
        return state.after(model, **sums)
