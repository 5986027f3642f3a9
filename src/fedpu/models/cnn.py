"""Small convolutional networks: the paper's for MNIST, and a compact one for colour images."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from fedpu.models.base import Model, image_shape


class PaperCNN(Model):
    """The released code's network: conv 1→3 5×5, pool, conv 3→20 5×5, pool, fc 320→50→10 (on 28×28 images)."""

    name: Literal["paper-cnn"] = "paper-cnn"
    takes_tokens: ClassVar[bool | None] = False
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout after the second convolution and the hidden layer")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network; images of other sizes and channels change the first layers' sizes only."""
        channels, height, width = image_shape(self.name, shape, smallest=16)
        flat = 20 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
        drops = [nn.Dropout2d(self.dropout)] if self.dropout else []
        drop = [nn.Dropout(self.dropout)] if self.dropout else []
        return nn.Sequential(
            nn.Conv2d(channels, 3, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(3, 20, 5),
            *drops,
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(flat, 50),
            nn.ReLU(),
            *drop,
            nn.Linear(50, classes),
        )


class ColourCNN(Model):
    """A compact network for 32×32 colour images: a stride-2 stem, 32-64-64-128 channels, GroupNorm."""

    name: Literal["colour-cnn"] = "colour-cnn"
    takes_tokens: ClassVar[bool | None] = False
    channels: int = Field(32, ge=8, multiple_of=8, description="channels of the first layer, a multiple of 8")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network: about 0.14 million parameters with 32 channels."""
        colours, _, _ = image_shape(self.name, shape, smallest=8)
        width = self.channels

        def block(before: int, after: int, stride: int) -> list[nn.Module]:
            return [
                nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
                nn.GroupNorm(8, after),
                nn.ReLU(),
            ]

        return nn.Sequential(
            *block(colours, width, 2),
            *block(width, 2 * width, 1),
            nn.MaxPool2d(2),
            *block(2 * width, 2 * width, 1),
            *block(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, classes),
        )
