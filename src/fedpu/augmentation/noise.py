"""Noise."""

from __future__ import annotations

import math
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from fedpu.augmentation.transform import UniformTransform, to_both_sides

LARGEST = 1 - 2**-23
"""below 1, of which the inverse error function is infinite; to_both_sides gives no other number between the two"""


class Noise(UniformTransform):
    """Adds Gaussian noise of deviation ``noise`` to every value. A random magnitude multiplies the deviation."""

    keys: ClassVar[tuple[str, ...]] = ("noise", "random_magnitude")

    def numbers(self, shape: tuple[int, ...]) -> int:
        """Return one for each value."""
        return math.prod(shape)

    def change(
        self, inputs: Float[Tensor, "n *shape"], numbers: Float[Tensor, "n k"], magnitude: Float[Tensor, " n"]
    ) -> Float[Tensor, "n *shape"]:
        """Return the examples with noise: uniform numbers become Gaussian by the inverse of their distribution."""
        gaussian = to_both_sides(numbers).clamp(min=-LARGEST).erfinv()
        return inputs + (gaussian * (math.sqrt(2) * self.settings.noise * magnitude)[:, None]).view(inputs.shape)
