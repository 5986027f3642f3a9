"""The paper's non-iid split: every class cut into equal partitions, a client holds partitions of n different
classes.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from fedpu.data import Dataset
from fedpu.errors import ConfigError, DataError
from fedpu.partition.base import Partition, Partitioner, Rows
from fedpu.randomness import numpy_generator

Holds = np.ndarray[Any, np.dtype[np.bool_]]


class Classes(Partitioner):
    """Each client is randomly given ``classes_per_client`` partitions of as many different classes.

    ``clients · classes_per_client`` partitions in all, the same number of each class: 50 for 10 clients of 5 classes,
    20 for 10 clients of 2 classes, the paper's two cases.
    """

    kind: Literal["classes"] = "classes"
    clients: int = Field(10, ge=1, le=10**9, description="number of clients K")
    classes_per_client: int = Field(5, ge=1, le=10**4, description="partitions a client holds, each of another class")

    def split(self, data: Dataset, seed: int) -> Partition:
        """Draw who holds which classes, then cut every class into as many equal partitions as it has holders."""
        self.refuse_too_many(self.clients, data)
        count = len(data.classes)
        labels = data.labels.numpy()
        if (labels < 0).any():
            raise DataError(
                "partition.kind = 'classes' needs the class of every example, but some are unlabelled (−1)."
            )
        per_class = self._partitions_per_class(count)
        rng = numpy_generator(seed, "partition")
        holds = draw_holders(self.clients, count, self.classes_per_client, rng)
        parts: list[list[Rows]] = [[] for _ in range(self.clients)]
        for cls in range(count):
            members = rng.permutation(np.flatnonzero(labels == cls))
            if len(members) < per_class:
                raise ConfigError(
                    f"Class {cls} has {len(members)} examples, fewer than the {per_class} partitions that "
                    f"{self.clients} clients of {self.classes_per_client} classes need. Use fewer clients."
                )
            holders = rng.permutation(np.flatnonzero(holds[:, cls]))
            for holder, piece in zip(holders, np.array_split(members, per_class), strict=True):
                parts[holder].append(piece)
        return Partition.of([np.concatenate(pieces) for pieces in parts])

    def _partitions_per_class(self, count: int) -> int:
        if self.classes_per_client > count:
            raise ConfigError(
                f"partition.classes_per_client = {self.classes_per_client}, but the data have only {count} classes."
            )
        total = self.clients * self.classes_per_client
        if total % count:
            fits = [n for n in range(1, count + 1) if self.clients * n % count == 0]
            raise ConfigError(
                f"{self.clients} clients of {self.classes_per_client} classes make {total} partitions, which is not a "
                f"multiple of the {count} classes. With {self.clients} clients, classes_per_client can be "
                f"{', '.join(map(str, fits))}."
            )
        return total // count


def draw_holders(clients: int, classes: int, each: int, rng: np.random.Generator) -> Holds:
    """Draw uniformly a clients × classes 0/1 matrix with ``each`` ones in a row and equal column sums.

    A balanced matrix is shuffled by trades between two random clients that keep all sums (the curveball chain of
    Strona et al. 2014, whose stationary distribution is uniform). Drawing clients one after the other would run into
    dead ends, and repairing those would bias the draw.
    """
    holds = np.zeros((clients, classes), dtype=bool)
    for client in range(clients):
        holds[client, (client * each + np.arange(each)) % classes] = True
    for _ in range(10 * clients if clients > 1 else 0):
        one, other = rng.choice(clients, 2, replace=False)
        mine, theirs = holds[one] & ~holds[other], holds[other] & ~holds[one]
        pool = rng.permutation(np.flatnonzero(mine | theirs))
        kept = mine.sum()
        holds[[one, other]] &= ~(mine | theirs)
        holds[one, pool[:kept]] = True
        holds[other, pool[kept:]] = True
    return holds
