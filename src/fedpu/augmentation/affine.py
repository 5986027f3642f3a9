"""Rotating, stretching, shearing and moving images in one go."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import grid_sample

from fedpu import native
from fedpu.augmentation.shift import keep_in_sight
from fedpu.augmentation.transform import ImageTransform, kernels_for, to_both_sides


class Affine(ImageTransform):
    """Stretches an image, shears it, rotates it about its centre and moves it, each at random, with one interpolation.

    All six numbers are uniform, up to the largest rotation, shear and distance either way; stretching is uniform in
    the logarithm. Distances are parts of pixels, too. A random magnitude multiplies all of them.
    """

    keys: ClassVar[tuple[str, ...]] = ("shift", "border", "degrees", "stretch", "shear", "random_magnitude")

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse tables, and images that could be moved out of sight."""
        super().check(shape)
        keep_in_sight(self.settings.shift, shape)

    def numbers(self, shape: tuple[int, ...]) -> int:
        """Return six: rotation, stretching in height and width, shear, distance down and to the right."""
        return 6

    def change(
        self, inputs: Float[Tensor, "n *shape"], numbers: Float[Tensor, "n k"], magnitude: Float[Tensor, " n"]
    ) -> Float[Tensor, "n *shape"]:
        """Return the images, interpolated between their pixels."""
        most = self._most()
        if (library := kernels_for(inputs)) is not None:
            edge = self.settings.border == "edge"
            return native.affine(library, inputs, numbers, magnitude, native.Most(*most, edge))
        (height, width) = inputs.shape[2:]
        parts = to_both_sides(numbers) * magnitude[:, None]
        angle, taller, wider, shear, down, right = (parts * parts.new_tensor(most)).T
        # Where each new pixel (x right, y down, from the centre) comes from: back by the distance, then the inverse
        # of the rotation, of the shear (x + shear · y) and of the stretching.
        cos, sin = angle.cos(), angle.sin()
        by_x = torch.stack([(cos + shear * sin) / wider.exp(), -sin / taller.exp()], dim=1)
        by_y = torch.stack([(sin - shear * cos) / wider.exp(), cos / taller.exp()], dim=1)
        start = -(by_x * right[:, None] + by_y * down[:, None])
        # PyTorch measures places in halves of the image's sides. Its own affine_grid gives the same, but is slow.
        x, y = (torch.arange(side, device=inputs.device) - (side - 1) / 2 for side in (width, height))
        halves = parts.new_tensor([2 / width, 2 / height])[:, None]
        across = (by_x[:, :, None] * x + start[:, :, None]) * halves
        downwards = by_y[:, :, None] * y * halves
        grid = (across[:, :, None, :] + downwards[:, :, :, None]).permute(0, 2, 3, 1)
        padding = "border" if self.settings.border == "edge" else "zeros"
        return grid_sample(inputs, grid, padding_mode=padding, align_corners=False)

    def _most(self) -> list[float]:
        """Return the largest value of each of the six."""
        settings = self.settings
        stretch, shift = math.log1p(settings.stretch), float(settings.shift)
        return [math.radians(settings.degrees), stretch, stretch, settings.shear, shift, shift]
