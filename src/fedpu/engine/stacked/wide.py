"""Networks with many channels, in the place of a stack: each client's network runs by itself, without a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.engine.stacked.wide_layers import Chain, unknown_layer, wide_layer_for
from fedpu.models import Precision
from fedpu.round import Tensors

CHANNELS_LAST = (0, 2, 3, 1)
"""the order in which a convolution's weights lie in the flat buffer: (outputs, height, width, inputs)"""


class WideNetwork:
    """Runs K networks, forward and backward, on flat parameters (K, D), as :class:`StackedNetwork` does."""

    def __init__(self, chain: Chain, names: list[str]) -> None:
        self.chain = chain
        self.names = names
        self.shapes = list(chain.sizes)
        self.length = sum(math.prod(shape) for shape in self.shapes)

    @classmethod
    def of(cls, network: nn.Module, precision: Precision = "float32") -> WideNetwork | None:
        """Return the twin of an ``nn.Sequential`` of known layers on images, or None where a layer has no twin."""
        if type(network) is not nn.Sequential or not any(isinstance(m, nn.Conv2d) for m in network.modules()):
            return None
        parameters = dict(network.named_parameters())
        trained = all(p.requires_grad and p.dtype == torch.float32 for p in parameters.values())
        if not trained or list(network.buffers()):
            return None
        chain = wide_layer_for(network)
        if not isinstance(chain, Chain) or list(chain.sizes) != [tuple(p.shape) for p in parameters.values()]:
            return None
        for convolution in chain.convolutions():
            convolution.in_bfloat16 = precision == "bfloat16"
        return cls(chain, list(parameters))

    @classmethod
    def missing(cls, network: nn.Module) -> str | None:
        """Say which layer of a network on images has no twin; nothing, where that is not what is missing."""
        if not any(isinstance(module, nn.Conv2d) for module in network.modules()):
            return None
        found = unknown_layer(network)
        return None if found is None else f"there is no fast form of the network's layer {found}"

    def flatten(self, state: Tensors) -> Float[Tensor, " D"]:
        """Return a model's parameters as one vector."""
        return torch.cat([_to_flat(state[name]) for name in self.names])

    def unflatten(self, flat: Float[Tensor, " D"]) -> Tensors:
        """Return a vector as a model's parameters."""
        plain = torch.contiguous_format
        views = self.views(flat[None])
        return {name: part[0].clone(memory_format=plain) for name, part in zip(self.names, views, strict=True)}

    def views(self, flat: Float[Tensor, "K D"]) -> list[Tensor]:
        """Return a flat buffer as the parameters that it holds."""
        views, start = [], 0
        for shape in self.shapes:
            end = start + math.prod(shape)
            part = flat[:, start:end]
            if len(shape) == 4:
                outputs, inputs, height, width = shape
                views.append(part.view(len(flat), outputs, height, width, inputs).permute(0, 1, 4, 2, 3))
            else:
                views.append(part.view(len(flat), *shape))
            start = end
        return views

    def forward(self, parameters: Sequence[Tensor], x: Float[Tensor, "K *shape N"]) -> Float[Tensor, "K C N"]:
        """Return the logits of every network on its own batch; ``parameters`` are the ``views`` of a flat buffer."""
        if len(x) == 1:
            return self._forward_one(parameters, x, 0)[None]
        # What one network keeps for the way back would be overwritten by the next: it is run again there.
        self._inputs = x
        return torch.stack([self._forward_one(parameters, x, k) for k in range(len(x))])

    def _forward_one(self, parameters: Sequence[Tensor], x: Float[Tensor, "K *shape N"], k: int) -> Tensor:
        batch = x[k].movedim(-1, 0)
        batch = batch.contiguous(memory_format=torch.channels_last) if batch.dim() == 4 else batch.contiguous()
        return self.chain.forward(batch, [part[k] for part in parameters]).T

    def backward(
        self, parameters: Sequence[Tensor], gradient: Float[Tensor, "K C N"], gradients: Sequence[Tensor]
    ) -> None:
        """Write the gradient of all parameters to ``gradients``, views of another buffer, given the logits'."""
        for k in range(len(gradient)):
            if len(gradient) > 1:
                self._forward_one(parameters, self._inputs, k)
            own, out = [part[k] for part in parameters], [part[k] for part in gradients]
            self.chain.backward(gradient[k].T.contiguous(), own, out, inputs=False)


def _to_flat(value: Tensor) -> Tensor:
    return value.permute(CHANNELS_LAST).reshape(-1) if value.dim() == 4 else value.reshape(-1)
