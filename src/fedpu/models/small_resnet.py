"""A small residual network for colour images: the most accuracy for the time of two cores."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedpu.models.base import Model, image_shape
from fedpu.models.resnet9 import ResidualSum

GAIN = 2**0.5
"""makes up for what ReLU takes from the size of a signal"""
TINY = 1e-5


class SmallResNet(Model):
    """A stem of 4×4 patches at half the resolution, then 2, 4 and 4 times its channels with two residual blocks.

    Filters are standardised (Qiao et al. 2019): a layer's filters have mean 0 and the same length whatever its weights
    are. With GroupNorm behind them they learn as fast as BatchNorm does, from one image at a time, so that nothing of
    a batch or of a client's classes is in the network's statistics.
    """

    name: Literal["small-resnet"] = "small-resnet"
    takes_tokens: ClassVar[bool | None] = False
    width: int = Field(32, ge=8, le=4096, multiple_of=8, description="for small-resnet: channels of the stem")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network: about 0.46 million parameters with 32 channels."""
        colours, _, _ = image_shape(self.name, shape, smallest=16)
        stem, middle, end = self.width, 2 * self.width, 4 * self.width
        return nn.Sequential(
            *_block(colours, stem, size=4, stride=2),
            *_block(stem, middle, pool=True),
            ResidualSum(*_block(middle, middle), *_block(middle, middle)),
            *_block(middle, end, pool=True),
            ResidualSum(*_block(end, end), *_block(end, end)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(end, classes),
        )


def _block(before: int, after: int, size: int = 3, stride: int = 1, pool: bool = False) -> list[nn.Module]:
    pooling = [nn.MaxPool2d(2)] if pool else []
    return [
        StandardisedConv2d(before, after, size, stride=stride, padding=1, bias=False),
        *pooling,
        nn.GroupNorm(8, after),
        nn.ReLU(),
    ]


class StandardisedConv2d(nn.Conv2d):
    """A convolution with filters of mean 0 and length √2."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve with the standardised filters."""
        centred = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        length = (centred.square().sum(dim=(1, 2, 3), keepdim=True) + TINY).rsqrt()
        out: Tensor = F.conv2d(x, centred * (GAIN * length), self.bias, self.stride, self.padding)
        return out
