"""The contract of a model: settings that build a network for a shape of input and a number of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

from fedpu.errors import ConfigError
from fedpu.registry import Choice


class Model(Choice, ABC):
    """A network to be built. Its initial weights come from PyTorch's generator, which the caller seeds."""

    name: str = ""

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network for inputs of ``shape`` (channels first), with ``classes`` outputs."""


def image_shape(model: str, shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """Return (channels, height, width), or say that the model can't take such inputs."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        given = "×".join(map(str, shape))
        raise ConfigError(
            f"model.name = '{model}' takes images of at least {smallest}×{smallest} pixels; these inputs are {given}. "
            "model.name = 'mlp' takes inputs of any shape."
        )
    return shape[0], shape[1], shape[2]
