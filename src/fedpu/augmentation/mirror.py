"""Mirroring."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from fedpu.augmentation.transform import ImageTransform


class Mirror(ImageTransform):
    """Swaps left and right of an image, with probability one half."""

    def numbers(self, shape: tuple[int, ...]) -> int:
        """Return one: to mirror or not."""
        return 1

    def change(
        self, inputs: Float[Tensor, "n *shape"], numbers: Float[Tensor, "n k"], magnitude: Float[Tensor, " n"]
    ) -> Float[Tensor, "n *shape"]:
        """Return the images, some of them mirrored."""
        columns = torch.arange(inputs.shape[-1], device=inputs.device)
        columns = torch.where(numbers < 0.5, columns.flip(0), columns)
        return inputs.gather(3, columns[:, None, None].expand_as(inputs))
