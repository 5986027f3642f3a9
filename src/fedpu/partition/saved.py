"""A partition that an earlier run saved."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from fedpu.data import Dataset
from fedpu.partition.base import Partition, Partitioner


class Saved(Partitioner):
    """The partition in a file, such as the ``partition.npz`` of a run directory."""

    kind: Literal["saved"] = "saved"
    path: str = Field("partition.npz", description='for kind = "saved": the partition.npz of an earlier run')

    def split(self, data: Dataset, seed: int) -> Partition:
        """Read the partition; the experiment checks that it fits the data."""
        return Partition.load(Path(self.path))
