"""Partitions give every example to exactly one client, in the promised shares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu.data import Dataset
from fedpu.errors import ConfigError, DataError
from fedpu.partition import PARTITIONS, Classes, Column, Dirichlet, Iid, Partition, Saved
from fedpu.partition.classes import draw_holders


def dataset(labels: np.ndarray, client: np.ndarray | None = None) -> Dataset:
    x = np.arange(len(labels), dtype=np.float32)[:, None]
    classes = [str(c) for c in range(labels.max() + 1)]
    return Dataset.from_arrays(
        x, labels, x_test=x[:1], y_test=np.abs(labels[:1]), client=client, classes=classes, name="made"
    )


def balanced(classes: int = 10, each: int = 60) -> Dataset:
    return dataset(np.random.default_rng(0).permutation(np.repeat(np.arange(classes), each)))


def class_counts(data: Dataset, partition: Partition) -> np.ndarray:
    labels = data.labels.numpy()
    return np.stack([np.bincount(labels[partition[k]], minlength=len(data.classes)) for k in range(len(partition))])


@pytest.mark.parametrize("kind", ["iid", "classes", "dirichlet"])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_example_is_lost_or_doubled_and_the_seed_decides(kind: str, seed: int) -> None:
    data = balanced()
    partition = PARTITIONS[kind]().split(data, seed)
    partition.check(600)
    again, other = PARTITIONS[kind]().split(data, seed), PARTITIONS[kind]().split(data, seed + 1)
    assert np.array_equal(partition.rows, again.rows)
    assert np.array_equal(partition.offsets, again.offsets)
    assert not np.array_equal(partition.rows, other.rows)


@given(st.integers(1, 97))
def test_iid_parts_differ_by_one_at_most(clients: int) -> None:
    data = balanced(each=10)
    sizes = np.diff(Iid(clients=clients).split(data, 0).offsets)
    assert sizes.sum() == 100
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(("clients", "each"), [(10, 5), (10, 2), (10, 1), (10, 10), (20, 3), (100, 5), (4, 5)])
def test_classes_gives_n_equal_partitions_of_n_classes(clients: int, each: int) -> None:
    data = balanced(each=120)
    counts = class_counts(data, Classes(clients=clients, classes_per_client=each).split(data, 3))
    assert ((counts > 0).sum(axis=1) == each).all()
    size = 120 / (clients * each / 10)
    assert set(counts[counts > 0]) <= {int(np.floor(size)), int(np.ceil(size))}


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(2, 8), st.data())
def test_holders_have_the_right_sums_however_they_are_drawn(clients: int, classes: int, data: st.DataObject) -> None:
    each = data.draw(st.sampled_from([n for n in range(1, classes + 1) if clients * n % classes == 0] or [classes]))
    if clients * each % classes:
        return
    holds = draw_holders(clients, classes, each, np.random.default_rng(data.draw(st.integers(0, 99))))
    assert (holds.sum(axis=1) == each).all()
    assert (holds.sum(axis=0) == clients * each // classes).all()


def test_every_pair_of_classes_is_equally_likely_to_be_held_together() -> None:
    together = np.zeros((10, 10))
    for seed in range(400):
        holds = draw_holders(10, 10, 5, np.random.default_rng(seed)).astype(float)
        together += holds.T @ holds
    pairs = together[~np.eye(10, dtype=bool)] / 400  # 10 clients · (5·4)/(10·9) = 20/9 in the mean
    assert abs(pairs - 20 / 9).max() < 0.25


def test_classes_refuses_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"not a multiple of the 10 classes.*can be 10"):
        Classes(clients=7, classes_per_client=3).split(balanced(), 0)
    with pytest.raises(ConfigError, match="only 10 classes"):
        Classes(clients=10, classes_per_client=11).split(balanced(), 0)
    with pytest.raises(ConfigError, match="fewer than the 300 partitions"):
        Classes(clients=600, classes_per_client=5).split(balanced(), 0)


def test_dirichlet_is_skewed_by_a_small_alpha_and_even_for_a_large_one() -> None:
    data = balanced(each=500)

    def spread(alpha: float) -> float:
        counts = class_counts(data, Dirichlet(clients=5, alpha=alpha).split(data, 0))
        return float(counts.std(axis=0).mean())

    assert spread(0.1) > 5 * spread(100.0)
    with pytest.raises(ConfigError, match=r"Raise partition\.alpha"):
        Dirichlet(clients=500, alpha=0.01).split(balanced(), 0)


def test_column_follows_the_data() -> None:
    data = dataset(np.array([0, 1, 0, 1, 0, 1]), client=np.array(["b", "a", "b", "c", "a", "c"]))
    partition = Column().split(data, 0)
    assert [partition[k].tolist() for k in range(3)] == [[1, 4], [0, 2], [3, 5]]
    with pytest.raises(DataError, match="no client column"):
        Column().split(balanced(), 0)


def test_a_partition_can_be_saved_and_used_again(tmp_path) -> None:  # type: ignore[no-untyped-def]
    data = balanced()
    partition = Dirichlet().split(data, 0)
    partition.save(tmp_path / "p.npz")
    loaded = Saved(path=str(tmp_path / "p.npz")).split(data, 99)
    assert np.array_equal(loaded.rows, partition.rows)
    assert np.array_equal(loaded.offsets, partition.offsets)
    with pytest.raises(DataError, match="made for other data"):
        loaded.check(599)
    with pytest.raises(DataError, match="no partition file"):
        Partition.load(tmp_path / "nothing.npz")
    (tmp_path / "bad.npz").write_bytes(b"not an archive")
    with pytest.raises(DataError, match="not a partition"):
        Partition.load(tmp_path / "bad.npz")


def test_more_clients_than_examples_is_refused() -> None:
    with pytest.raises(ConfigError, match="every client needs at least one"):
        Iid(clients=601).split(balanced(), 0)
