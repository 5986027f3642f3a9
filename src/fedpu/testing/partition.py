"""The contract of a partition."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedpu.data import Dataset
from fedpu.errors import DataError
from fedpu.partition import Partition, Partitioner
from fedpu.round import Tensors
from fedpu.testing import generators
from fedpu.testing.promise import Checked, made
from fedpu.testing.rounds import copied
from fedpu.testing.trial import difference, digits

SEED = "Draw from fedpu.randomness.numpy_generator(seed, purpose), and from nothing else"


def check_partition(partition: Partitioner | type[Partitioner], *, data: Dataset | None = None) -> None:
    """Check that a partition keeps every promise; raise :class:`ContractError` where it does not.

    A class is made with its defaults. ``data`` are what it is to hand out, by default 300 digits with a client column.
    """
    partition = made(Partitioner, partition)
    checked = Checked(partition)
    data = data or digits()
    with checked.able_to("hand out a data set"):
        _check_whole(checked, partition, data)
        _check_seed(checked, partition, data)
        _check_reach(checked, partition, data)
    with checked.able_to("be saved and read back"):
        _check_saved(checked, partition.split(data, 0))


def _check_whole(checked: Checked, partition: Partitioner, data: Dataset) -> None:
    for seed in (0, 1):
        before = copied(_columns(data))
        found = partition.split(data, seed)
        checked.promise(
            "split returns a Partition",
            isinstance(found, Partition),
            f"It returned {type(found).__name__}",
            "Return fedpu.partition.Partition.of([rows of client 0, rows of client 1, …])",
        )
        try:
            found.check(len(data.labels))
        except DataError:
            counts = np.bincount(found.rows[(found.rows >= 0)], minlength=len(data.labels))
            empty = int((np.diff(found.offsets) < 1).sum())
            checked.promise(
                "every example goes to exactly one client, and every client has one at least",
                False,
                f"With seed {seed}, {int((counts == 0).sum())} examples went to nobody, {int((counts > 1).sum())} to "
                f"several, and {empty} clients had none",
                "Begin with all of numpy.arange(len(data.labels)) and cut it into parts",
            )
        changed = difference(before, _columns(data))
        checked.promise(
            "it leaves the data as they are", not changed, f"A split changed {changed} in place", "Work on copies"
        )


def _columns(data: Dataset) -> Tensors:
    columns = {"inputs": data.inputs, "labels": data.labels}
    columns |= {"test_inputs": data.test_inputs, "test_labels": data.test_labels}
    return columns if data.client is None else columns | {"client": data.client}


def _check_seed(checked: Checked, partition: Partitioner, data: Dataset) -> None:
    promise = "a partition depends on the data, its settings and the seed alone"
    with generators.seeded(1):
        before = generators.states()
        first = partition.split(data, 0)
        moved = generators.moved(before)
    checked.promise(promise, moved is None, f"After a split {moved} global generator was not as before it", SEED)
    with generators.seeded(2):
        partition.split(data, 1)
        again = partition.split(data, 0)
    checked.promise(
        promise, _same(first, again), "The same seed gave another partition when global generators were others", SEED
    )


def _check_reach(checked: Checked, partition: Partitioner, data: Dataset) -> None:
    turned = replace(data, test_inputs=data.test_inputs.flip(0) // 2, test_labels=(data.test_labels + 1) % 2)
    checked.promise(
        "a partition does not look at the test set",
        _same(partition.split(data, 0), partition.split(turned, 0)),
        "With another test set it handed the training examples out in another way",
        "Use data.inputs, data.labels and data.client",
    )


def _check_saved(checked: Checked, found: Partition) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "partition.npz"
        found.save(path)
        read = Partition.load(path)
    checked.promise(
        "a partition can be saved and read back",
        _same(found, read),
        "Read back it was another one",
        "Make it of whole numbers, with Partition.of",
    )


def _same(one: Partition, other: Partition) -> bool:
    return np.array_equal(one.rows, other.rows) and np.array_equal(one.offsets, other.offsets)
