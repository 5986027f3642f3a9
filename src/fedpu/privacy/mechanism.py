"""Clipping and Gaussian noise, on flat vectors; and which entries of a model such a vector holds."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedpu.errors import ConfigError
from fedpu.randomness import numpy_generator
from fedpu.round import Broadcast, Tensors, Update

Vector = NDArray[np.float64]
Source = Literal["seed", "system"]


def clipped(vector: Vector, bound: float) -> Vector:
    """Return the vector, scaled down to the norm ``bound`` if it is longer."""
    norm = float(np.linalg.norm(vector))
    return vector if norm <= bound else vector * (bound / norm)


def gaussian(source: Source, size: int, seed: int, purpose: str, *keys: int) -> Vector:
    """Return standard normal noise of ``(seed, purpose, keys)``, or of the operating system's randomness."""
    if source == "seed":
        return numpy_generator(seed, purpose, *keys).standard_normal(size)
    from scipy import special

    return special.ndtri(uniform(size))  # type: ignore[no-any-return]


def uniform(size: int) -> Vector:
    """Return numbers between 0 and 1, without both ends, from the operating system's randomness."""
    bits = np.frombuffer(os.urandom(8 * size), np.uint64) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53


class Layout:
    """What a client returns as one vector: the change of every trained parameter, in the network's order, then what
    the aggregation and the method send besides. Frozen parameters are not in it.
    """

    def __init__(self, network: nn.Module, extras: Tensors, shared: Tensors) -> None:
        buffers = [name for name, _ in network.named_buffers()]
        if buffers:
            raise ConfigError(
                f"The network keeps statistics of its clients' data beside its parameters ({buffers[0]}, … "
                f"{len(buffers)} in all), which neither clipping nor a secure sum covers. With [privacy] on, use a "
                'network without them: GroupNorm in place of BatchNorm (model.norm = "group").'
            )
        trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self._shapes = {
            group: {name: tensor.shape for name, tensor in tensors.items()}
            for group, tensors in (("model", trained), ("extras", extras), ("shared", shared))
        }
        self.length = sum(shape.numel() for shapes in self._shapes.values() for shape in shapes.values())

    def vector(self, sent: Broadcast, update: Update) -> Vector:
        """Return an update as a vector: what has changed in the model and the shared tensors, and the extras."""
        parts = [update.model[name].double() - sent.model[name].double() for name in self._shapes["model"]]
        parts += [update.extras[name].double() for name in self._shapes["extras"]]
        parts += [update.shared[name].double() - sent.shared[name].double() for name in self._shapes["shared"]]
        return torch.cat([part.reshape(-1) for part in parts]).numpy() if parts else np.zeros(0)

    def update(self, sent: Broadcast, vector: Vector, clients: int) -> Update:
        """Return a mean of such vectors as one update of so many clients."""
        groups: dict[str, Tensors] = {"model": {}, "extras": {}, "shared": {}}
        start = 0
        for group, shapes in self._shapes.items():
            for name, shape in shapes.items():
                groups[group][name] = torch.from_numpy(vector[start : start + shape.numel()]).view(shape)
                start += shape.numel()
        return Update(
            client=0,
            examples=1,
            model=sent.model | _moved(sent.model, groups["model"]),
            terms={},
            extras={name: value.float() for name, value in groups["extras"].items()},
            shared=_moved(sent.shared, groups["shared"]),
            clients=clients,
        )


def _moved(before: Tensors, change: Tensors) -> Tensors:
    return {name: (before[name].double() + value).to(before[name].dtype) for name, value in change.items()}
