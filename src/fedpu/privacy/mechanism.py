"""Clipping and Gaussian noise, on flat vectors; and which entries of a model such a vector holds."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import nn

from fedpu.engine import ModelState
from fedpu.errors import ConfigError
from fedpu.randomness import numpy_generator

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
    return special.ndtri(uniform(size))  # type: ignore[no-any-return]


def uniform(size: int) -> Vector:
    """Return numbers between 0 and 1, without both ends, from the operating system's randomness."""
    bits = np.frombuffer(os.urandom(8 * size), np.uint64) >> np.uint64(11)
    return (bits.astype(np.float64) + 0.5) * 2.0**-53


class Layout:
    """The trained parameters of a network as one vector, in the network's order; frozen ones are not in it."""

    def __init__(self, network: nn.Module) -> None:
        buffers = [name for name, _ in network.named_buffers()]
        if buffers:
            raise ConfigError(
                f"The network keeps statistics of its clients' data beside its parameters ({buffers[0]}, … "
                f"{len(buffers)} in all), which neither clipping nor a secure sum covers. With [privacy] on, use a "
                'network without them: GroupNorm in place of BatchNorm (model.norm = "group").'
            )
        self.shapes = {name: p.shape for name, p in network.named_parameters() if p.requires_grad}
        self.length = sum(shape.numel() for shape in self.shapes.values())

    def difference(self, before: ModelState, after: ModelState) -> Vector:
        """Return an update: what a client has changed."""
        parts = [(after[name].double() - before[name].double()).reshape(-1) for name in self.shapes]
        return torch.cat(parts).numpy() if parts else np.zeros(0)

    def moved(self, model: ModelState, update: Vector) -> ModelState:
        """Return the model after an update."""
        result = dict(model)
        start = 0
        for name, shape in self.shapes.items():
            part = torch.from_numpy(update[start : start + shape.numel()]).view(shape)
            result[name] = (model[name].double() + part).to(model[name].dtype)
            start += shape.numel()
        return result
