"""What all parties of a secure sum agree on beforehand, and how real numbers become whole ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpu.errors import ConfigError, TrainingError

FEWEST = 2
"""clients of a secure sum: that of one would be its own update"""


class SecureAggregationError(TrainingError):
    """A secure sum that can't be had: too few clients left, or a message that was changed."""


@dataclass(frozen=True)
class Rules:
    """The public parameters of one secure sum. They are also the first message, from the server to every client."""

    clients: int
    """clients that are asked"""
    length: int
    """numbers that each of them sends"""
    range: float
    """the largest number, up to its sign"""
    bits: int = 24
    """bits of a quantised number, with its sign"""
    max_weight: int = 1
    """the largest weight of a client, such as its number of examples"""
    threshold: float = 0.66
    """share of the asked clients, and of the holders of a secret, that must be left"""
    neighbours: int = 0
    """clients with which a client shares masks and secrets; 0: all of them (SecAgg), a few: SecAgg+"""

    def __post_init__(self) -> None:
        if self.clients < FEWEST:
            raise SecureAggregationError(
                "A secure sum needs at least two clients: that of one client is its own update. Draw more clients a "
                "round (aggregation.participation)."
            )
        if not 0.5 < self.threshold <= 1:
            raise ConfigError(f"The threshold must be above a half and at most 1; it is {self.threshold}.")
        if not 2 <= self.bits <= 53 or not self.range > 0 or self.max_weight < 1 or self.length < 0:
            raise ConfigError(f"These rules of secure aggregation can't be used: {self}.")
        if self.largest_sum >= 2**63:
            raise ConfigError(
                f"A sum over {self.clients} clients of weight {self.max_weight} at {self.bits} bits could overflow 64 "
                "bits. Lower privacy.quantisation_bits or privacy.max_examples."
            )

    @property
    def levels(self) -> int:
        """The largest quantised number."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def step(self) -> float:
        """The distance between quantised numbers."""
        return self.range / self.levels

    @property
    def largest_sum(self) -> int:
        """What a coordinate of the sum can come to."""
        return self.clients * self.max_weight * self.levels

    @property
    def word(self) -> np.dtype[Any]:
        """Words modulo whose size all arithmetic is done: 32 bits where no sum can overflow them, else 64."""
        return np.dtype("<u4") if self.largest_sum < 2**31 else np.dtype("<u8")

    def quorum(self, parties: int) -> int:
        """Return how many of so many parties must be left."""
        return max(FEWEST, math.ceil(self.threshold * parties))


@dataclass(frozen=True, eq=False)
class Total:
    """What a secure sum gives: Σ_k weight_k and Σ_k weight_k · values_k, over the clients that were left."""

    clients: list[int]
    weight: int
    sums: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        """The weighted mean."""
        return self.sums / self.weight


def encode(rules: Rules, weight: int, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the weight and the weighted values as whole numbers, below a step from the real ones.

    Values are rounded towards zero, so that no norm grows: a bound that clipping has set still holds afterwards.
    """
    if len(values) != rules.length:
        raise SecureAggregationError(f"A client has {len(values)} numbers; {rules.length} were agreed on.")
    if not 0 <= weight <= rules.max_weight:
        raise SecureAggregationError(
            f"A client has weight {weight}; at most {rules.max_weight} was agreed on. Raise privacy.max_examples."
        )
    largest = float(np.abs(values).max(initial=0.0))
    if not largest <= rules.range:
        raise SecureAggregationError(
            f"A client's update holds the number {largest:.4g}; at most {rules.range:.4g} was agreed on. Raise "
            "privacy.quantisation_range, or lower aggregation.lr."
        )
    numbers = np.empty(rules.length + 1, np.int64)
    numbers[0] = weight
    numbers[1:] = np.trunc(values / rules.range * rules.levels)
    numbers[1:] *= weight
    return numbers


def decode(rules: Rules, clients: list[int], words: NDArray[Any]) -> Total:
    """Return what a sum of encoded vectors, modulo the word, stands for."""
    signed = words.view(np.dtype(f"<i{words.itemsize}"))
    return Total(clients, int(signed[0]), signed[1:].astype(np.float64) * rules.step)
