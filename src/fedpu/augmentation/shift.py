"""Moving images by whole pixels."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import pad

from fedpu.augmentation.transform import ImageTransform
from fedpu.errors import ConfigError


class Shift(ImageTransform):
    """Moves an image by up to ``shift`` pixels up or down and to either side, every distance as likely.

    A random magnitude is the largest distance: 0 … ``shift``, each as likely.
    """

    keys: ClassVar[tuple[str, ...]] = ("shift", "border", "random_magnitude")

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse tables, and images that could be moved out of sight."""
        super().check(shape)
        keep_in_sight(self.settings.shift, shape)

    def numbers(self, shape: tuple[int, ...]) -> int:
        """Return two: how far down, and how far to the right."""
        return 2

    def change(
        self, inputs: Float[Tensor, "n *shape"], numbers: Float[Tensor, "n k"], magnitude: Float[Tensor, " n"]
    ) -> Float[Tensor, "n *shape"]:
        """Return the images moved."""
        most = self.settings.shift
        limit = (magnitude * (most + 1)).floor().clamp(max=most)[:, None]
        distance = ((numbers * (2 * limit + 1)).floor() - limit).long()
        mode = "replicate" if self.settings.border == "edge" else "constant"
        return windows(pad(inputs, (most,) * 4, mode=mode), most - distance[:, 0], most - distance[:, 1], inputs.shape)


def keep_in_sight(shift: int, shape: tuple[int, ...]) -> None:
    """Refuse to move images as far as they are wide or high."""
    if shift >= min(shape[1:]):
        raise ConfigError(
            f"augmentation.shift = {shift} would move images of {shape[1]}×{shape[2]} pixels out of sight. Choose at "
            f"most {min(shape[1:]) - 1}; an eighth of the side is usual."
        )


def windows(
    padded: Float[Tensor, "n c h_padded w_padded"],
    top: Int64[Tensor, " n"],
    left: Int64[Tensor, " n"],
    shape: torch.Size,
) -> Float[Tensor, "n c h w"]:
    """Return the part of ``shape`` of each image that begins at ``top`` and ``left``.

    A row of such a part is contiguous, wherever it begins. So all of its pixels are copied at once, from a view of the
    memory in which every pixel begins a row. That is faster than a gather of single pixels (benchmarks/views.py).
    """
    count, channels, height, width = shape
    _, _, tall, wide = padded.shape
    pixels = padded.contiguous().view(-1)
    rows = pixels.as_strided((len(pixels) - width + 1, width), (1, 1))
    image = torch.arange(count, device=pixels.device) * (channels * tall * wide) + top * wide + left
    row = torch.arange(channels * tall, device=pixels.device).view(channels, tall)[:, :height].reshape(-1) * wide
    return rows.index_select(0, (image[:, None] + row).view(-1)).view(shape)
