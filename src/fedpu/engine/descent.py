"""SGD on a client, on its model or on parts whose sum is the model (``Method.parts``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedpu.engine.sgd import Sgd
from fedpu.method import Batch, Method
from fedpu.round import Broadcast, Tensors, Work, prefixed, under

Correct = Callable[[], None]
"""adds an aggregation's part to the gradients of all parameters of the network"""


class Descent:
    """Plain SGD on a network's parameters."""

    def __init__(self, network: nn.Module, work: Work, correct: Correct) -> None:
        self._network = network
        self._correct = correct
        self._optimiser = _sgd(network.parameters(), work)
        self.steps = 0
        """that were taken"""

    def shown(self, batch: Batch) -> Iterator[Batch]:
        """Yield a batch as often as it is learned from."""
        yield batch

    def step(self, batch: Batch, total: Tensor) -> None:
        """Take a step along the gradient of a loss."""
        self._optimiser.zero_grad()
        total.backward()
        self._correct()
        self._optimiser.step()
        self.steps += 1

    def end(self) -> Tensors:
        """Return what is shared besides the model."""
        return {}


class PartedDescent(Descent):
    """SGD on parts of a model: a batch is learned from once for each of them, the others staying as they are.

    Since θ is the sum of the parts, ∂θ/∂part = 1: a part's gradient is that of the network's parameters, and to it
    comes that of terms which are about the part itself. Each part has momentum and weight decay of its own; what an
    aggregation adds to gradients is added in each of these steps.
    """

    def __init__(self, method: Method, network: nn.Module, sent: Broadcast, work: Work, correct: Correct) -> None:
        super().__init__(network, work, correct)
        self._method = method
        self._whole = {name: p for name, p in network.named_parameters() if p.requires_grad}
        first, *others = method.parts
        device = next(network.parameters()).device
        # In the network's order, whatever that of a message: sums over parameters must have the same bits everywhere.
        self._received = {
            part: {name: under(part, sent.shared)[name].to(device) for name in self._whole} for part in others
        }
        rest = {
            name: p.detach() - sum(self._received[part][name] for part in others) for name, p in self._whole.items()
        }
        self._received = {first: rest} | self._received
        self._parts = {
            part: {name: value.detach().clone().requires_grad_() for name, value in values.items()}
            for part, values in self._received.items()
        }
        self._optimisers = {part: _sgd(values.values(), work) for part, values in self._parts.items()}

    def shown(self, batch: Batch) -> Iterator[Batch]:
        """Yield the batch once for each part."""
        for part in self._parts:
            yield replace(batch, part=part, parts=self._parts)

    def step(self, batch: Batch, total: Tensor) -> None:
        """Move the part that the batch was shown for."""
        assert batch.part is not None
        self._network.zero_grad()
        for values in self._parts.values():
            for value in values.values():
                value.grad = None
        if total.requires_grad:
            total.backward()
        for p in self._whole.values():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        self._correct()
        for name, own in self._parts[batch.part].items():
            along = self._whole[name].grad
            own.grad = along if own.grad is None or along is None else own.grad + along
        self._optimisers[batch.part].step()
        self._add_up(self._parts)
        self.steps += 1

    def end(self) -> Tensors:
        """Put the parts that the client sends back into the network; return all but the first of them."""
        with torch.no_grad():
            trained = {part: {n: v.detach() for n, v in values.items()} for part, values in self._parts.items()}
            returned = self._method.returned(self._received, trained)
            self._add_up(returned)
        others = prefixed({part: returned[part] for part in self._method.parts[1:]})
        return {name: value.cpu() for name, value in others.items()}

    @torch.no_grad()
    def _add_up(self, parts: dict[str, Tensors]) -> None:
        for name, p in self._whole.items():
            p.copy_(torch.stack([values[name] for values in parts.values()]).sum(dim=0))


def start_descent(method: Method, network: nn.Module, sent: Broadcast, work: Work, correct: Correct) -> Descent:
    """Return what takes the steps of one update, from the parameters that the network has."""
    if method.parts:
        return PartedDescent(method, network, sent, work, correct)
    return Descent(network, work, correct)


def _sgd(parameters: Iterable[Tensor], work: Work) -> Sgd:
    return Sgd(parameters, work.lr, work.momentum, work.weight_decay)
