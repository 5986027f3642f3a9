"""Partitions give every example to exactly one client, in the promised shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu.data import Dataset
from fedpu.errors import ConfigError, DataError
from fedpu.labelling import Labelling, label
from fedpu.partition import PARTITIONS, Classes, Column, Dirichlet, Iid, Partition, Rotated, Saved
from fedpu.partition.classes import draw_holders
from fedpu.testing import check_partition


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


@pytest.mark.parametrize("kind", list(PARTITIONS))
def test_it_keeps_every_promise_of_a_partition(kind: str, tmp_path: Path) -> None:
    if kind == "saved":
        path = tmp_path / "p.npz"
        Iid().split(balanced(), 0).save(path)
        check_partition(Saved(path=str(path)), data=balanced())
    elif kind == "rotated":
        check_partition(Rotated(per_class=2))  # there are not five of every class for each of ten clients
    else:
        check_partition(PARTITIONS[kind])


@pytest.mark.parametrize("kind", ["iid", "classes", "dirichlet", "rotated"])
def test_another_seed_gives_another_partition(kind: str) -> None:
    for data in (balanced(), balanced(each=80)):
        check_partition(PARTITIONS[kind], data=data)
        one, other = (PARTITIONS[kind]().split(data, seed) for seed in (0, 1))
        assert not np.array_equal(one.rows, other.rows)


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


@pytest.mark.parametrize("clients", [10, 20, 40])
def test_rotated_gives_the_rest_in_fedmatchs_shares(clients: int) -> None:
    data = balanced(each=100 * clients + 5 * clients)
    counts = class_counts(data, Rotated(clients=clients).split(data, 1))
    base = np.array([50, 15, 3, 3, 3, 2, 3, 3, 3, 15]) * 10
    for client, row in enumerate(counts):
        np.testing.assert_allclose(row - 5, np.roll(base, client % 10), atol=1)
        assert row.argmax() == client % 10
    assert (np.diff(Rotated(clients=clients).split(data, 1).offsets) == 1050).all()


def test_rotated_with_labels_per_class_leaves_unlabelled_data_with_these_shares() -> None:
    data = balanced(each=1050)
    labelling = Labelling(positive=10, overlap=True, per_class=5)
    federation, hidden = label(data, Rotated().split(data, 0), labelling, 0)
    assert (federation.labelled_counts == 5).all(), "labelled data are the same in number everywhere"
    for k in range(10):
        unlabelled = hidden.labels[federation.span(k)][federation.client(k).labels < 0]
        shares = np.bincount(unlabelled.numpy(), minlength=10) / len(unlabelled)
        np.testing.assert_allclose(shares, np.roll(Rotated().shares, k), atol=2e-3)


@settings(max_examples=30)
@given(st.integers(1, 13), st.lists(st.integers(30, 400), min_size=3, max_size=3), st.integers(0, 2))
def test_rotated_uses_every_example_whatever_the_numbers(clients: int, each: list[int], per_class: int) -> None:
    data = dataset(np.repeat(np.arange(3), each))
    method = Rotated(clients=clients, per_class=per_class, shares=(0.6, 0.3, 0.1))
    partition = method.split(data, 0)
    partition.check(sum(each))
    sizes = np.diff(partition.offsets)
    assert sizes.max() - sizes.min() <= 4, "all but rounding is even"
    wanted = method.expected(np.array(each, dtype=float) - clients * per_class)
    counts = class_counts(data, partition)
    assert (counts >= per_class).all()
    assert np.abs(counts - per_class - wanted).max() <= 1
    # The fitting multiplies rows and columns: what is left of the table when both are divided out is as it was.
    asked = np.log(np.stack([np.roll(method.shares, k) for k in range(clients)]))
    found = np.log(wanted)
    for table in (asked, found):
        table -= table.mean(axis=0)
        table -= table.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found, asked, atol=1e-9)


def test_rotated_hands_out_classes_of_which_nothing_is_left() -> None:
    counts = class_counts(balanced(each=50), Rotated().split(balanced(each=50), 0))
    assert (counts == 5).all()
    data = dataset(np.repeat(np.arange(3), [20, 200, 200]))
    counts = class_counts(data, Rotated(clients=4, shares=(0.6, 0.3, 0.1)).split(data, 0))
    assert (counts[:, 0] == 5).all()
    assert (counts.sum(axis=1) == 105).all()


def test_rotated_refuses_what_does_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"needs 50 examples of each class for 10 clients, but class 0 has 40"):
        Rotated().split(balanced(each=40), 0)
    with pytest.raises(ConfigError, match="10 numbers, but 'made' has 3 classes"):
        Rotated().split(balanced(classes=3), 0)
    with pytest.raises(DataError, match="class of every example"):
        Rotated(clients=2, shares=(0.5, 0.5)).split(dataset(np.array([0, 1, -1])), 0)
    with pytest.raises(ConfigError, match="leaves client"):
        Rotated(clients=4, per_class=0, shares=(0.9, 0.1)).split(dataset(np.array([0, 1, 1, 1])), 0)
    with pytest.raises(ValueError, match=r"add up to 1; they add up to 0\.9"):
        Rotated(shares=(0.5, 0.4))


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
