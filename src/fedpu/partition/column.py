"""The data say whose they are."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedpu.data import Dataset
from fedpu.errors import DataError
from fedpu.partition.base import Partition, Partitioner


class Column(Partitioner):
    """A client for every value of the data's ``client`` column; ``clients`` is not asked for."""

    kind: Literal["column"] = "column"

    def split(self, data: Dataset, seed: int) -> Partition:
        """Group the examples by their ``client`` column, in the order of the data."""
        if data.client is None:
            raise DataError(
                f"partition.kind = 'column' needs to know whose each example is, but '{data.name}' has no client "
                "column. Name the column of a table with data.client, put an array 'client' into a .npz file, or "
                "choose iid, classes or dirichlet."
            )
        owners = data.client.numpy()
        order = np.argsort(owners, kind="stable")
        _, starts = np.unique(owners[order], return_index=True)
        return Partition(order.astype(np.int64), np.append(starts, len(order)).astype(np.int64))
