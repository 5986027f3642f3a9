"""SCAFFOLD (Karimireddy et al. 2020, https://arxiv.org/abs/1910.06378), with option II for the control variates.

Clients whose data differ drift apart while they train, each towards its own optimum. A control variate c_k estimates
the gradient of client k, and c the mean gradient; their difference is added to every gradient of the client:

    client, every step:     gradient + c − c_k
    client, at the end:     c_k⁺ = c_k − c + (w_t − w_k) / A
    server:                 w_{t+1} = w_t + server_lr · (mean w_k − w_t)
                            c⁺ = c + (|S|/K) · mean(c_k⁺ − c_k)

S are the clients of the round and K is the number of all clients. Both start with zeros.

A is K·η_l in the paper: the number of local steps times their learning rate, so that (w_t − w_k) / A is the mean of the
gradients that the client used. The paper has no momentum. With momentum an early gradient moves the parameters in many
steps and a late one in few; A is the sum of all these weights (:attr:`~fedpu.round.Descent.length`), so that the
quotient is a weighted mean of the gradients, and without momentum the paper's. Weight decay counts as a part of them.

Means over clients have the weights n_k/n, since the server minimises Σ_k (n_k/n) R_k: with all clients in a round c
stays Σ_k (n_k/n) c_k. Where all n_k are equal, these are the paper's plain means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from pydantic import Field

from fedpu.aggregation.base import Aggregation, ServerState, mean_of
from fedpu.round import Broadcast, Correction, Descent, Ending, Tensors, Update, Work


class Scaffold(Aggregation):
    """Local training with the drift of each client taken out of its gradients.

    The server keeps and sends c, a client keeps c_k and returns c_k⁺ − c_k, all by the names of the parameters.
    """

    takes: ClassVar[Literal["each", "mean"]] = "mean"
    name: Literal["scaffold"] = "scaffold"
    server_lr: float = Field(1.0, gt=0, le=1e6, description="step of the server along what clients have changed")

    def start_server(self, state: ServerState) -> Tensors:
        """Return c = 0."""
        return {name: torch.zeros_like(value) for name, value in state.parameters.items()}

    def broadcast(self, state: ServerState) -> Tensors:
        """Send c."""
        return state.extras

    def start_client(self, parameters: Tensors) -> Tensors:
        """Return c_k = 0."""
        return {name: torch.zeros_like(value) for name, value in parameters.items()}

    def correction(self, sent: Broadcast, work: Work, state: Tensors) -> Correction:
        """Return c − c_k."""
        return Correction(offset={name: sent.extras[name] - own for name, own in state.items()})

    def end_client(
        self, sent: Broadcast, work: Work, state: Tensors, start: Tensors, trained: Tensors, descent: Descent
    ) -> Ending:
        """Keep c_k⁺ and return c_k⁺ − c_k; a client without a batch has learned nothing of its gradient."""
        if descent.steps == 0:
            return Ending(self.returns(start), state)
        changes = {
            name: (start[name] - trained[name]) / descent.length - sent.extras[name] for name in self.returns(start)
        }
        return Ending(changes, {name: own + changes[name] for name, own in state.items()})

    def returns(self, parameters: Tensors) -> Tensors:
        """Return what c_k⁺ − c_k looks like."""
        return {name: torch.zeros_like(value) for name, value in parameters.items()}

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Take the server's step, and move c by the part of the clients that took part; buffers are averaged."""
        mean = mean_of(updates)
        model, changes = mean.of("model"), mean.of("extras")
        share = mean.clients / state.clients
        for name, before in state.parameters.items():
            step = self.server_lr * (model[name].double() - before.double())
            model[name] = (before.double() + step).to(before.dtype)
        return state.after(model, **{name: state.extras[name] + share * change for name, change in changes.items()})
