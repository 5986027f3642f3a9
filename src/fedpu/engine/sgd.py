"""SGD with momentum and weight decay, the steps of ``torch.optim.SGD`` to the bit.

PyTorch's own class imports PyTorch's compiler when it is first used, which nothing here needs: a second and 70 MB for
every node of a deployment and every worker.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Sgd:
    """Moves parameters along their gradients: v ← m v + (∇ + d w), w ← w − lr v."""

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        self._parameters = list(parameters)
        self._lr = lr
        self._momentum = momentum
        self._weight_decay = weight_decay
        self._velocities: list[Tensor | None] = [None] * len(self._parameters)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take a step; what has no gradient stays."""
        for index, parameter in enumerate(self._parameters):
            if parameter.grad is None:
                continue
            along = parameter.grad
            if self._weight_decay:
                along = along.add(parameter, alpha=self._weight_decay)
            if self._momentum:
                before = self._velocities[index]
                along = along.clone() if before is None else before.mul_(self._momentum).add_(along)
                self._velocities[index] = along
            parameter.add_(along, alpha=-self._lr)
