"""The contract of a model: settings that build a network for a shape of input and a number of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from fedpu.errors import ConfigError
from fedpu.registry import Choice

Precision = Literal["float32", "bfloat16"]


class Model(Choice, ABC):
    """A network to be built. Its initial weights come from PyTorch's generator, which the caller seeds."""

    name: str = ""
    takes_tokens: ClassVar[bool | None] = None
    """Are its inputs token ids (True) or amounts (False)? None: it is tried."""
    precision: Precision = Field(
        "float32",
        description='of the convolutions in training; "bfloat16": 1.5 to 2 times as fast with 32 channels and more, on '
        "processors that have it",
    )

    def largest_token(self) -> int | None:
        """Return the largest token id that it knows; None where it has no such limit."""
        return None

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
