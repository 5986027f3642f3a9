"""Brightness and contrast."""

from __future__ import annotations

import math
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from fedpu.augmentation.transform import ImageTransform, to_both_sides


class Colour(ImageTransform):
    """Changes an image's contrast about its own mean, then its brightness, alike in all of its channels.

    Brightness is uniform, contrast uniform in its logarithm. A random magnitude multiplies both.
    """

    keys: ClassVar[tuple[str, ...]] = ("brightness", "contrast", "random_magnitude")

    def numbers(self, shape: tuple[int, ...]) -> int:
        """Return two: brightness and contrast."""
        return 2

    def change(
        self, inputs: Float[Tensor, "n *shape"], numbers: Float[Tensor, "n k"], magnitude: Float[Tensor, " n"]
    ) -> Float[Tensor, "n *shape"]:
        """Return the images, brighter or darker, with more or less contrast."""
        parts = (to_both_sides(numbers) * magnitude[:, None])[:, :, None, None, None]
        brightness = parts[:, 0] * self.settings.brightness
        contrast = (parts[:, 1] * math.log1p(self.settings.contrast)).exp()
        mean = inputs.mean(dim=(1, 2, 3), keepdim=True)
        return (inputs - mean) * contrast + (mean + brightness)
