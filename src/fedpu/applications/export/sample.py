"""Rows drawn at random that look like a model's inputs, to compare an exported model with ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedpu.data import Inputs
from fedpu.data.encoding import NumberColumn
from fedpu.data.table import Column, Table
from fedpu.record import ModelCard

MOST_TOKENS = 10_000


def sample(card: ModelCard, count: int, largest: int | None) -> Any:
    """Return raw rows: a table, where the model was trained on one, with some values missing; else stored inputs."""
    rng = np.random.default_rng(0)
    if card.encoding is not None:
        return Table({column.name: _column(column, count, rng) for column in card.encoding.columns})
    names = tuple(str(row) for row in range(count))
    if card.tokens:
        ids = rng.integers(0, (MOST_TOKENS if largest is None else largest) + 1, (count, *card.shape))
        return Inputs(torch.from_numpy(ids), names)
    if card.dtype == "uint8":
        return Inputs(torch.from_numpy(rng.integers(0, 256, (count, *card.shape), dtype=np.uint8)), names)
    normal, shape = card.normalisation, (1, -1) + (1,) * (len(card.shape) - 1)
    mean, std = (np.array(values).reshape(shape) for values in (normal.mean, normal.std))
    drawn = (rng.normal(size=(count, *card.shape)) * std + mean) / normal.scale
    return Inputs(torch.from_numpy(drawn.astype(np.float32)), names)


def _column(column: Any, count: int, rng: np.random.Generator) -> Column:
    missing = rng.random(count) < 0.1
    if isinstance(column, NumberColumn):
        drawn = column.fill + rng.normal(size=count) * max(abs(column.fill), 1.0)
        return np.where(missing, np.nan, drawn.astype(np.float32).astype(np.float64))
    words = rng.choice(np.array([*column.words, "a word that nobody knows"], dtype=object), count)
    words[missing] = None
    return words
