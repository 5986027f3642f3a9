"""A small network for texts: the mean of what each token means, then a hidden layer."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from fedpu.errors import ConfigError
from fedpu.models.base import Model

PADDING = 0
"""the token id that fills texts up"""


class Text(Model):
    """Embedded tokens, averaged over the text, and fully connected layers (as fastText, with a hidden layer)."""

    name: Literal["text"] = "text"
    takes_tokens: ClassVar[bool | None] = True
    vocabulary: int = Field(
        10_000, ge=2, le=10**7, description="for text: number of token ids, from 0 (padding) to the largest"
    )
    embedding: int = Field(64, ge=1, le=10**5, description="for text: numbers that a token becomes")
    units: int = Field(64, ge=1, le=10**6, description="for text: size of the hidden layer")

    def largest_token(self) -> int | None:
        """Return the last id of the vocabulary."""
        return self.vocabulary - 1

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network."""
        if len(shape) != 1:
            given = "×".join(map(str, shape))
            raise ConfigError(f"model.name = 'text' takes a row of token ids per example; these inputs are {given}.")
        return nn.Sequential(
            MeanOfTokens(self.vocabulary, self.embedding),
            nn.Linear(self.embedding, self.units),
            nn.ReLU(),
            nn.Linear(self.units, classes),
        )


class MeanOfTokens(nn.Module):
    """The mean of the embeddings of a text's tokens; padding has no part in it, and a text of nothing else is 0."""

    def __init__(self, vocabulary: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        # As large as the mean of many of them should be for the layer that follows.
        nn.init.uniform_(self.embedding.weight, -1.0, 1.0)

    def forward(self, tokens: Int64[Tensor, "n length"]) -> Float[Tensor, "n size"]:
        """Return one vector for each text."""
        there = (tokens != PADDING).unsqueeze(-1).to(self.embedding.weight.dtype)
        total = (self.embedding(tokens) * there).sum(dim=1)
        return torch.div(total, there.sum(dim=1).clamp(min=1.0))
