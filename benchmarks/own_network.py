"""A network such as a user may bring: a module with a ``forward`` of its own, which has no fast form."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Three convolutions, a normalisation and a residual sum."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(shape[0], 32, 3, stride=2, padding=1)
        self.wide = nn.Conv2d(32, 64, 3, padding=1)
        self.norm = nn.GroupNorm(8, 64)
        self.down = nn.Conv2d(64, 64, 3, stride=2, padding=1)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = torch.relu(self.stem(x))
        x = torch.relu(self.norm(self.wide(x)))
        x = torch.relu(self.down(x) + nn.functional.avg_pool2d(x, 2))
        logits: Tensor = self.head(x.mean(dim=(2, 3)))
        return logits
