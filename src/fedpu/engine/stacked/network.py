"""A stack of networks with the same layers and weights of their own, in one flat buffer."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.engine.stacked.layers import Layer, fused, layer_for
from fedpu.round import Tensors


class StackedNetwork:
    """Runs K networks at once, forward and backward, on flat parameters (K, D)."""

    def __init__(self, layers: list[Layer], names: list[str]) -> None:
        self.layers = layers
        self.names = names
        self.shapes = [size for layer in layers for size in layer.sizes]
        self.length = sum(math.prod(shape) for shape in self.shapes)

    @classmethod
    def of(cls, network: nn.Module) -> StackedNetwork | None:
        """Return the stacked twin of an ``nn.Sequential`` of known layers, or None where a layer has no twin."""
        layers: list[Layer] = []
        for module in _flat_modules(network):
            layer = layer_for(module)
            if layer is None:
                return None
            layers.append(layer)
        layers = fused(layers)
        for before, after in itertools.pairwise(layers):
            after.may_overwrite_input = not before.needs_output
        parameters = dict(network.named_parameters())
        trainable = all(p.requires_grad and p.dtype == torch.float32 for p in parameters.values())
        if not trainable or list(network.buffers()) or not any(layer.sizes for layer in layers):
            return None
        twin = cls(layers, list(parameters))
        return twin if twin.shapes == [tuple(p.shape) for p in parameters.values()] else None

    @classmethod
    def missing(cls, network: nn.Module) -> str | None:
        """Say what keeps a network from having a stacked twin; nothing, where it has one."""
        if cls.of(network) is not None:
            return None
        for module in _flat_modules(network):
            if layer_for(module) is None:
                return f"there is no fast form of the network's layer {_shown(module)}"
        return "not all parameters of the network are trained in 32 bits, or it has buffers"

    def apart(self) -> StackedNetwork:
        """Return the same stack with a memory of its own for what ``backward`` needs of the last ``forward``."""
        other = copy.copy(self)
        other.layers = [copy.copy(layer) for layer in self.layers]
        return other

    def flatten(self, state: Tensors) -> Float[Tensor, " D"]:
        """Return a model's parameters as one vector."""
        return torch.cat([state[name].reshape(-1) for name in self.names])

    def unflatten(self, flat: Float[Tensor, " D"]) -> Tensors:
        """Return a vector as a model's parameters."""
        return {name: part[0].clone() for name, part in zip(self.names, self.views(flat[None]), strict=True)}

    def forward(self, parameters: Sequence[Tensor], x: Float[Tensor, "K *shape N"]) -> Float[Tensor, "K C N"]:
        """Return the logits of every network on its own batch; ``parameters`` are the ``views`` of a flat buffer."""
        for layer in self.layers:
            mine, parameters = parameters[: len(layer.sizes)], parameters[len(layer.sizes) :]
            x = layer.forward(x, mine)
        return x

    def backward(
        self, parameters: Sequence[Tensor], gradient: Float[Tensor, "K C N"], gradients: Sequence[Tensor]
    ) -> None:
        """Write the gradient of all parameters to ``gradients``, views of another buffer, given the logits'
        gradient.
        """
        first = next(index for index, layer in enumerate(self.layers) if layer.sizes)
        for index in range(len(self.layers) - 1, first - 1, -1):
            layer = self.layers[index]
            count = len(parameters) - len(layer.sizes)
            before = layer.backward(gradient, parameters[count:], gradients[count:], index > first)
            parameters, gradients = parameters[:count], gradients[:count]
            if before is not None:
                gradient = before

    def views(self, flat: Float[Tensor, "K D"]) -> list[Tensor]:
        """Return a flat buffer as the parameters that it holds."""
        views, start = [], 0
        for shape in self.shapes:
            end = start + math.prod(shape)
            views.append(flat[:, start:end].view(flat.shape[0], *shape))
            start = end
        return views


def _shown(module: nn.Module) -> str:
    """Return one line that names a layer."""
    return str(module).splitlines()[0].rstrip("(")


def _flat_modules(network: nn.Module) -> list[nn.Module]:
    """Return the modules of nested ``nn.Sequential`` in order; identities and dropout of nothing are left out."""
    if type(network) is nn.Sequential:
        return [module for child in network for module in _flat_modules(child)]
    idle = isinstance(network, nn.Identity) or (isinstance(network, nn.Dropout | nn.Dropout2d) and network.p == 0)
    return [] if idle else [network]
