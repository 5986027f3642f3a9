"""The small residual network with other ways to normalise: what ``small-resnet`` was chosen among."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from fedpu.models.resnet9 import ResidualSum
from fedpu.models.small_resnet import StandardisedConv2d


def group(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Plain filters, GroupNorm."""
    return _network(shape, classes, nn.Conv2d, lambda width: nn.GroupNorm(8, width))


def batch(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Plain filters, BatchNorm."""
    return _network(shape, classes, nn.Conv2d, nn.BatchNorm2d)


def standardised(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Standardised filters, GroupNorm: small-resnet itself."""
    return _network(shape, classes, StandardisedConv2d, lambda width: nn.GroupNorm(8, width))


def _network(
    shape: tuple[int, ...],
    classes: int,
    convolution: type[nn.Conv2d],
    normalisation: Callable[[int], nn.Module],
) -> nn.Module:
    def block(before: int, after: int, size: int = 3, stride: int = 1, pool: bool = False) -> list[nn.Module]:
        pooling = [nn.MaxPool2d(2)] if pool else []
        filters = convolution(before, after, size, stride=stride, padding=1, bias=False)
        return [filters, *pooling, normalisation(after), nn.ReLU()]

    return nn.Sequential(
        *block(shape[0], 32, size=4, stride=2),
        *block(32, 64, pool=True),
        ResidualSum(*block(64, 64), *block(64, 64)),
        *block(64, 128, pool=True),
        ResidualSum(*block(128, 128), *block(128, 128)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, classes),
    )
