"""Who holds which examples: the contract of a partition, and the partition itself as plain data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedpu.data import Dataset
from fedpu.errors import DAMAGED_ARCHIVE, ConfigError, DataError
from fedpu.randomness import numpy_generator
from fedpu.registry import Choice

Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Partition:
    """The training examples of every client: client ``k`` holds ``rows[offsets[k]:offsets[k + 1]]``."""

    rows: Rows
    offsets: Rows

    @classmethod
    def of(cls, parts: Sequence[Rows]) -> Partition:
        """Make a partition of one array of row numbers for each client."""
        sizes = [len(part) for part in parts]
        return cls(np.concatenate(parts).astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Rows:
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    def shuffled(self, seed: int, secret: Sequence[int] = ()) -> Partition:
        """Return the partition with each client's rows in a random order, so that their order says nothing of them.

        ``secret`` are numbers that whoever knows the seed does not know, so that nobody can undo it.
        """
        owner = np.repeat(np.arange(len(self)), np.diff(self.offsets))
        keys = numpy_generator(seed, "order", *secret).random(len(self.rows))
        return Partition(self.rows[np.lexsort((keys, owner))], self.offsets)

    def check(self, examples: int) -> None:
        """Refuse a partition that loses or doubles an example of a data set with that many."""
        ends = self.offsets[[0, -1]].tolist() if len(self.offsets) > 1 else []
        if ends != [0, len(self.rows)] or (np.diff(self.offsets) < 1).any():
            raise DataError("The partition is damaged: its offsets do not rise from 0 to the number of its rows.")
        if len(self.rows) != examples or not np.array_equal(np.sort(self.rows), np.arange(examples)):
            raise DataError(
                f"The partition holds {len(self.rows)} rows and does not give each of the data's {examples} "
                "training examples to exactly one client: it was made for other data."
            )

    def save(self, path: Path) -> None:
        """Write the partition to an ``.npz`` file."""
        np.savez_compressed(path, rows=self.rows, offsets=self.offsets)

    @classmethod
    def load(cls, path: Path) -> Partition:
        """Read a partition that ``save`` wrote."""
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                rows, offsets = file["rows"], file["offsets"]
        except FileNotFoundError as error:
            raise DataError(f"There is no partition file '{path}'.") from error
        except DAMAGED_ARCHIVE as error:
            raise DataError(f"'{path}' is damaged, or not a partition that fedpu saved ({error}).") from error
        if not all(array.ndim == 1 and np.issubdtype(array.dtype, np.integer) for array in (rows, offsets)):
            raise DataError(f"'{path}' is not a partition that fedpu saved: its arrays are not lists of whole numbers.")
        if len(offsets) < 2:
            raise DataError(f"'{path}' is damaged: it has no client. Restore it from a copy, or start a new run.")
        return cls(rows.astype(np.int64), offsets.astype(np.int64))


class Partitioner(Choice, ABC):
    """A way to hand a data set's training examples out to clients."""

    chosen_by: ClassVar[str] = "kind"
    kind: str = ""

    def refuse_too_many(self, clients: int, data: Dataset) -> None:
        """Refuse more clients than there are examples."""
        if clients > len(data.labels):
            raise ConfigError(
                f"partition.clients = {clients} is more than the {len(data.labels)} training examples of "
                f"'{data.name}': "
                "every client needs at least one."
            )

    @abstractmethod
    def split(self, data: Dataset, seed: int) -> Partition:
        """Return who holds what. Every example goes to exactly one client; every client gets at least one."""
