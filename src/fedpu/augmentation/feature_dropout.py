"""Leaving out values of an example."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from fedpu.augmentation.transform import UniformTransform


class FeatureDropout(UniformTransform):
    """Puts each value of an example at its mean with probability ``feature_dropout``.

    A random magnitude multiplies the probability.
    """

    keys: ClassVar[tuple[str, ...]] = ("feature_dropout", "random_magnitude")

    def numbers(self, shape: tuple[int, ...]) -> int:
        """Return one for each value."""
        return math.prod(shape)

    def change(
        self, inputs: Float[Tensor, "n *shape"], numbers: Float[Tensor, "n k"], magnitude: Float[Tensor, " n"]
    ) -> Float[Tensor, "n *shape"]:
        """Return the examples with some values at their mean, which is zero."""
        dropped = numbers < (self.settings.feature_dropout * magnitude)[:, None]
        return torch.where(dropped.view(inputs.shape), 0.0, inputs)
