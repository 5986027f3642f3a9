"""A perceptron with hidden layers, for inputs of any shape."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import nn

from fedpu.models.base import Model

Size = Annotated[int, Field(ge=1, le=10**6)]


class MLP(Model):
    """Fully connected layers with ReLU between them."""

    name: Literal["mlp"] = "mlp"
    takes_tokens: ClassVar[bool | None] = False
    hidden: list[Size] = Field([200], description="for mlp: sizes of the hidden layers")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network."""
        sizes = [math.prod(shape), *self.hidden]
        layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], classes))
