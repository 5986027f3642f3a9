"""Label skew by a Dirichlet draw: the usual non-iid benchmark of federated learning (Hsu et al. 2019)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from fedpu.data import Dataset
from fedpu.errors import ConfigError, DataError
from fedpu.partition.base import Partition, Partitioner, Rows
from fedpu.randomness import numpy_generator

TRIES = 100


class Dirichlet(Partitioner):
    """Each class is shared out among the clients in proportions drawn from Dirichlet(alpha)."""

    kind: Literal["dirichlet"] = "dirichlet"
    clients: int = Field(10, ge=1, le=10**9, description="number of clients K")
    alpha: float = Field(0.5, gt=0, description='for kind = "dirichlet": small is skewed, large is even')
    min_examples: int = Field(
        1, ge=1, le=10**9, description='for kind = "dirichlet": draw until every client has as many'
    )

    def split(self, data: Dataset, seed: int) -> Partition:
        """Draw proportions for every class until every client has ``min_examples``."""
        self.refuse_too_many(self.clients, data)
        labels = data.labels.numpy()
        if (labels < 0).any():
            raise DataError(
                "partition.kind = 'dirichlet' needs the class of every example, but some are unlabelled (−1)."
            )
        rng = numpy_generator(seed, "partition")
        for _ in range(TRIES):
            parts = self._draw(labels, len(data.classes), rng)
            if min(len(part) for part in parts) >= self.min_examples:
                return Partition.of(parts)
        raise ConfigError(
            f"In {TRIES} draws of partition.kind = 'dirichlet' with alpha = {self.alpha} some of the {self.clients} "
            f"clients always "
            f"had fewer than {self.min_examples} examples. Raise partition.alpha or lower partition.clients."
        )

    def _draw(self, labels: Rows, count: int, rng: np.random.Generator) -> list[Rows]:
        pieces: list[list[Rows]] = [[] for _ in range(self.clients)]
        for cls in range(count):
            members = rng.permutation(np.flatnonzero(labels == cls))
            shares = rng.dirichlet(np.full(self.clients, self.alpha))
            cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            for client, piece in enumerate(np.split(members, cuts)):
                pieces[client].append(piece)
        return [np.concatenate(mine) for mine in pieces]
