"""Who holds which examples: the contract of a partition, and the partition itself as plain data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpu.data import Dataset
from fedpu.errors import DataError
from fedpu.registry import Settings

Rows = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class Partition:
    """The training examples of every client: client ``k`` holds ``rows[offsets[k]:offsets[k + 1]]``."""

    rows: Rows
    offsets: Rows

    @classmethod
    def of(cls, parts: Sequence[Rows]) -> Partition:
        """Make a partition of one array of row numbers a client."""
        sizes = [len(part) for part in parts]
        return cls(np.concatenate(parts).astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Rows:
        return self.rows[self.offsets[client] : self.offsets[client + 1]]

    def check(self, examples: int) -> None:
        """Refuse a partition that loses or doubles an example of a data set with that many."""
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
            with np.load(path, allow_pickle=False) as file:
                return cls(file["rows"], file["offsets"])
        except FileNotFoundError as error:
            raise DataError(f"There is no partition file '{path}'.") from error
        except (ValueError, KeyError, OSError) as error:
            raise DataError(f"'{path}' is not a partition that fedpu saved ({error}).") from error


class Partitioner(Settings, ABC):
    """A way to hand a data set's training examples out to clients."""

    @abstractmethod
    def split(self, data: Dataset, seed: int) -> Partition:
        """Return who holds what. Every example goes to exactly one client; every client gets at least one."""
