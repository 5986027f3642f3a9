"""The contract of a transform: drawing and applying are apart, so that several clients can share one batch."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedpu import native
from fedpu.augmentation.keys import Keys
from fedpu.errors import ConfigError

Drawn = dict[str, Tensor]
"""what a transform has drawn, by name; the first dimension of each tensor is the examples"""


class Transform(ABC):
    """A random change of inputs, made from the table ``[augmentation]``.

    Each client draws from its own generator. The batch that the change is applied to may then hold examples of many
    clients, with what they drew concatenated in the same order.
    """

    keys: ClassVar[tuple[str, ...]] = ()
    """the keys of the table that the transform reads"""

    def __init__(self, settings: Keys) -> None:
        self.settings = settings

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs of a shape that can't be changed in this way; any shape is taken unless said otherwise."""
        return

    @abstractmethod
    def draw(self, count: int, shape: tuple[int, ...], generator: torch.Generator) -> Drawn:
        """Draw everything that is random for ``count`` inputs of ``shape``.

        The first rows are the same however many are drawn.
        """

    @abstractmethod
    def apply(self, inputs: Float[Tensor, "n *shape"], drawn: Drawn) -> Float[Tensor, "n *shape"]:
        """Return the normalised inputs changed as was drawn; ``inputs`` themselves are left alone."""


class UniformTransform(Transform):
    """A transform that draws a row of independent numbers between 0 and 1 for each example, in one call.

    If it reads the key ``random_magnitude``, and that is on, a row has one number more, the magnitude: which share of
    its full strength the transform has on this example.
    """

    @abstractmethod
    def numbers(self, shape: tuple[int, ...]) -> int:
        """Return how many numbers an example needs."""

    @abstractmethod
    def change(
        self, inputs: Float[Tensor, "n *shape"], numbers: Float[Tensor, "n k"], magnitude: Float[Tensor, " n"]
    ) -> Float[Tensor, "n *shape"]:
        """Return the inputs changed by these numbers."""

    @property
    def _random(self) -> bool:
        return self.settings.random_magnitude and "random_magnitude" in self.keys

    def draw(self, count: int, shape: tuple[int, ...], generator: torch.Generator) -> Drawn:
        """Draw the numbers of ``count`` examples."""
        # The transforms make uniform numbers into what they need, because PyTorch fills these one after the other:
        # torch.randn's first values depend on how many are asked for.
        return {"numbers": torch.rand(count, self.numbers(shape) + self._random, generator=generator)}

    def apply(self, inputs: Float[Tensor, "n *shape"], drawn: Drawn) -> Float[Tensor, "n *shape"]:
        """Return the inputs changed as was drawn."""
        if len(inputs) == 0:
            return inputs
        numbers = drawn["numbers"].to(inputs.device)
        if self._random:
            return self.change(inputs, numbers[:, :-1], numbers[:, -1])
        return self.change(inputs, numbers, numbers.new_ones(len(inputs)))


class ImageTransform(UniformTransform):
    """A transform of images, which refuses tables."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs that are not images."""
        if len(shape) != 3:
            shown = "×".join(map(str, shape))
            raise ConfigError(
                f"{type(self).__name__} in [augmentation] changes images (channels×height×width), but these inputs "
                f"have the shape {shown}. 'feature-dropout' and 'noise' change inputs of any shape."
            )


def to_both_sides(numbers: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return numbers between 0 and 1 spread evenly between −1 and 1."""
    return 2 * numbers - 1


def kernels_for(inputs: Float[Tensor, "n *shape"]) -> ctypes.CDLL | None:
    """Return the compiled kernels where there are any for such inputs; PyTorch's operations do the same."""
    return native.kernels().library if inputs.device.type == "cpu" and inputs.dtype == torch.float32 else None
