"""Random changes of images while a network is trained, as its first layer: without parameters, still in evaluation."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

SHIFT = 4
"""pixels by which an image is moved at most, up or down and to either side"""
DESCRIPTION = "in training, mirror images at random and move them by up to four pixels?"


class Augmentation(nn.Module):
    """Mirrors every other image and moves each by up to ``SHIFT`` pixels; what is bared is zero, the mean colour.

    It draws from PyTorch's generator, which is set for every client's update: a round stays the same bits.
    """

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Return the images changed while training, and as they are otherwise."""
        if not self.training:
            return x
        count, channels, height, width = x.shape
        mirrored = torch.rand(count, device=x.device) < 0.5
        down, right = torch.randint(2 * SHIFT + 1, (2, count, 1), device=x.device)
        rows = torch.arange(height, device=x.device) + down
        columns = torch.arange(width, device=x.device)
        columns = torch.where(mirrored[:, None], columns.flip(0), columns) + right
        padded = pad(x, (SHIFT, SHIFT, SHIFT, SHIFT))
        places = rows[:, :, None] * padded.shape[-1] + columns[:, None, :]
        return padded.flatten(2).gather(2, places.view(count, 1, -1).expand(-1, channels, -1)).view(x.shape)


def augmenting(wanted: bool) -> list[nn.Module]:
    """Return the layer in a list, which is empty where it is not wanted."""
    return [Augmentation()] if wanted else []
