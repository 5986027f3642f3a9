"""FedMatch's non-iid clients (Jeong et al. 2021): labelled data are alike, unlabelled data have a favourite class.

Every client first gets ``per_class`` random examples of each class. What is left goes to the clients in equal numbers,
client k's in the class shares that ``shares`` has when it is rotated by k places: class j has the share
``shares[(j − k) mod C]``.

The labels are hidden afterwards. With ``labelling.per_class`` the same number, ``labelling.positive`` the number of
classes and ``labelling.overlap = true`` each client has as many labels of every class as it got in the first step, and
its unlabelled data are distributed as those of the second: examples of a class are handed out at random, so it does not
matter which of them are labelled.

Every example has to go to somebody, so the numbers of each class must add up to what there is of it. Where classes are
equally frequent and the number of clients is a multiple of theirs, they do. Elsewhere rows and columns of the table of
shares are multiplied by factors until the clients have equal numbers and the classes their own (iterative proportional
fitting), which leaves the ratios between classes from client to client as they were asked for.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from fedpu.data import Dataset
from fedpu.errors import ConfigError, DataError
from fedpu.partition.base import Partition, Partitioner, Rows
from fedpu.randomness import numpy_generator

Table = np.ndarray[Any, np.dtype[np.float64]]
STEPS, CLOSE = 1000, 1e-3
"""of the fitting: steps at most, and how many examples a client may be off when it ends before"""
TINY = 1e-300


class Rotated(Partitioner):
    """Some examples of each class for every client, and the rest by class shares that are rotated from one to the next.

    The defaults are FedMatch's for CIFAR-10: five labelled images of each class; half of the unlabelled ones of one.
    """

    kind: Literal["rotated"] = "rotated"
    clients: int = Field(10, ge=1, le=10**9, description="number of clients K")
    per_class: int = Field(
        5,
        ge=0,
        le=10**9,
        description='for kind = "rotated": examples of each class that every client gets first; the same number as '
        "labelling.per_class, for unlabelled data that have the shares below",
    )
    shares: tuple[float, ...] = Field(
        (0.50, 0.15, 0.03, 0.03, 0.03, 0.02, 0.03, 0.03, 0.03, 0.15),
        min_length=1,
        description='for kind = "rotated": class shares of the rest on client 0, one for each class; on client k they '
        "are moved by k classes (FedMatch's)",
    )

    @field_validator("shares")
    @classmethod
    def _shares(cls, shares: tuple[float, ...]) -> tuple[float, ...]:
        if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"must be positive and add up to 1; they add up to {sum(shares):g}")
        return shares

    def split(self, data: Dataset, seed: int) -> Partition:
        """Hand out ``per_class`` of each class to everybody, then the rest by the rotated shares."""
        self.refuse_too_many(self.clients, data)
        labels, classes = data.labels.numpy(), len(data.classes)
        if (labels < 0).any():
            raise DataError(
                "partition.kind = 'rotated' needs the class of every example, but some are unlabelled (−1)."
            )
        if len(self.shares) != classes:
            raise ConfigError(
                f"partition.shares has {len(self.shares)} numbers, but '{data.name}' has {classes} classes. Give one "
                "for each class."
            )
        rng = numpy_generator(seed, "partition")
        members = [rng.permutation(np.flatnonzero(labels == cls)) for cls in range(classes)]
        given = self.clients * self.per_class
        for cls, rows in enumerate(members):
            if len(rows) < given:
                raise ConfigError(
                    f"partition.per_class = {self.per_class} needs {given} examples of each class for {self.clients} "
                    f"clients, but class {cls} has {len(rows)}. Lower it, or use fewer clients."
                )
        left = np.array([len(rows) - given for rows in members], dtype=np.float64)
        ends = np.rint(np.cumsum(self.expected(left), axis=0)).astype(np.int64)
        parts: list[list[Rows]] = [[] for _ in range(self.clients)]
        for cls, rows in enumerate(members):
            first, rest = np.split(rows, [given])
            pieces = zip(np.split(first, self.clients), np.split(rest, ends[:-1, cls]), strict=True)
            for mine, both in zip(parts, pieces, strict=True):
                mine.extend(both)
        return self._checked([np.concatenate(pieces) for pieces in parts])

    def expected(self, left: Table) -> Table:
        """Return how many examples of each class, of those that are left, each client should have."""
        wanted = np.stack([np.roll(self.shares, client) for client in range(self.clients)])
        size = left.sum() / self.clients
        for _ in range(STEPS):
            wanted *= left / np.maximum(wanted.sum(axis=0), TINY)  # of some class nothing may be left
            rows = wanted.sum(axis=1, keepdims=True)
            if np.abs(rows - size).max() < CLOSE:
                break
            wanted *= size / rows
        return wanted

    def _checked(self, parts: list[Rows]) -> Partition:
        for client, rows in enumerate(parts):
            if not len(rows):
                raise ConfigError(
                    f"partition.kind = 'rotated' leaves client {client} without an example: use fewer than "
                    f"{self.clients} clients, or raise partition.per_class."
                )
        return Partition.of(parts)
