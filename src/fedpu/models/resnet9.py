"""ResNet-9: the small residual network of the fast-CIFAR work (Page 2018)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor, nn

from fedpu.models.base import Model, image_shape


class ResNet9(Model):
    """Eight convolutions in two residual stages and a linear layer.

    Without normalisation it has no biases either, as FedMatch's. Its weights then start with the variance
    1 / fan-in, from a normal distribution cut at two standard deviations (Keras' ``VarianceScaling``): PyTorch's own
    start, of a third of that, would let the signal fade.
    """

    name: Literal["resnet9"] = "resnet9"
    takes_tokens: ClassVar[bool | None] = False
    norm: Literal["group", "batch", "none"] = Field(
        "group",
        description="for resnet9: batch keeps running statistics, which the server averages like parameters; none "
        "leaves biases out, too (FedMatch's)",
    )
    width: int = Field(64, ge=8, le=4096, multiple_of=8, description="for resnet9: channels of the first layer")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network."""
        channels, _, _ = image_shape(self.name, shape, smallest=16)
        w = self.width
        network = nn.Sequential(
            self._conv(channels, w),
            self._conv(w, 2 * w, pool=True),
            ResidualSum(self._conv(2 * w, 2 * w), self._conv(2 * w, 2 * w)),
            self._conv(2 * w, 4 * w, pool=True),
            self._conv(4 * w, 8 * w, pool=True),
            ResidualSum(self._conv(8 * w, 8 * w), self._conv(8 * w, 8 * w)),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(8 * w, classes, bias=self.norm != "none"),
        )
        if self.norm == "none":
            for weights in network.parameters():
                _scale_variance(weights)
        return network

    def _conv(self, before: int, after: int, pool: bool = False) -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(before, after, 3, padding=1, bias=False)]
        if self.norm != "none":
            layers.append(nn.BatchNorm2d(after) if self.norm == "batch" else nn.GroupNorm(8, after))
        layers.append(nn.ReLU())
        return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


class ResidualSum(nn.Module):
    """x + f(x), f being layers one after another."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        out: Tensor = x + self.layers(x)
        return out


CUT = 0.87962566103423978
"""standard deviation of a standard normal number that is drawn again until it lies between −2 and 2"""


def _scale_variance(weights: nn.Parameter) -> None:
    """Draw weights anew with variance 1 / fan-in."""
    std = math.sqrt(weights.shape[0] / weights.numel()) / CUT
    nn.init.trunc_normal_(weights, std=std, a=-2 * std, b=2 * std)
