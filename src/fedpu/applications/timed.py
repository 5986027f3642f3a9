"""Seconds of rounds that were measured."""

from __future__ import annotations

import statistics

WARM_UP = 1
"""rounds that do not count"""


class Timed:
    """Whoever has the seconds of every round after the first."""

    seconds: list[float]

    @property
    def best(self) -> float:
        """The fastest round."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.seconds)
