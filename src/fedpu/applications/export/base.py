"""The contract of an export format, and the network that takes raw inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedpu.applications.trained import Probabilities, TrainedModel
from fedpu.data import Encoding
from fedpu.data.encoding import NumberColumn
from fedpu.record import ModelCard


class Exporter(ABC):
    """Writes a model to a file that other programs can use."""

    suffix: ClassVar[str]

    @abstractmethod
    def write(self, model: TrainedModel, path: Path) -> None:
        """Write the file."""

    @abstractmethod
    def run(self, path: Path, rows: Any) -> Probabilities:
        """Return what the file makes of raw inputs, run as another program would."""


class RawNetwork(nn.Module):
    """Takes inputs as they are stored, normalises them, and gives probabilities."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        card = model.card
        self.network = model.network.cpu().eval()
        self.tokens = card.tokens
        self.scale = card.normalisation.scale
        shape = (1, -1) + (1,) * (len(card.shape) - 1)
        self.register_buffer("mean", torch.tensor(card.normalisation.mean).view(shape))
        self.register_buffer("std", torch.tensor(card.normalisation.std).view(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one probability per class."""
        if not self.tokens:
            inputs = (inputs.to(torch.float32) * self.scale - self.mean) / self.std  # type: ignore[operator]
        return torch.softmax(self.network(inputs), dim=1)


class ColumnNetwork(nn.Module):
    """Takes one number per column: NaN for a missing number, the place of a word among those of its column, or −1."""

    def __init__(self, encoding: Encoding, then: nn.Module) -> None:
        super().__init__()
        self.columns = encoding.columns
        self.then = then

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one probability per class."""
        parts: list[Tensor] = []
        for place, column in enumerate(self.columns):
            given = inputs[:, place : place + 1]
            if isinstance(column, NumberColumn):
                missing = torch.isnan(given)
                parts.append(torch.where(missing, torch.full_like(given, column.fill), given))
                if column.marked:
                    parts.append(missing.to(torch.float32))
            else:
                parts.append((given == torch.arange(len(column.words))).to(torch.float32))
        out: Tensor = self.then(torch.cat(parts, dim=1))
        return out


def example(card: ModelCard) -> Tensor:
    """Return two inputs of a model, to trace it with."""
    kind = {"uint8": torch.uint8, "float32": torch.float32, "int64": torch.int64}[card.dtype]
    return torch.ones(2, *card.shape, dtype=kind)
