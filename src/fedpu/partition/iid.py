"""Equal random parts."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fedpu.data import Dataset
from fedpu.partition.base import Partition, Partitioner
from fedpu.randomness import numpy_generator


class Iid(Partitioner):
    """Every client gets an equal random part of the data (sizes differ by one at most)."""

    kind: Literal["iid"] = "iid"
    clients: int = Field(10, ge=1, le=10**9, description="number of clients K")

    def split(self, data: Dataset, seed: int) -> Partition:
        """Shuffle the examples and cut them into ``clients`` parts."""
        self.refuse_too_many(self.clients, data)
        order = numpy_generator(seed, "partition").permutation(len(data.labels))
        return Partition.of(np.array_split(order, self.clients))
