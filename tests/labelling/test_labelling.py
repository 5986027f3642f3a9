"""Labelling: every class is covered if it can be, the right number is labelled, and nothing hidden is in reach."""

from __future__ import annotations

import gc
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.data import Dataset
from fedpu.errors import ConfigError, LabellingError
from fedpu.labelling import Federation, Labelling, label, label_everything
from fedpu.labelling.cover import assign_positive
from fedpu.method import METHODS
from fedpu.partition import Classes, Column, Dirichlet, Iid, Partition, Partitioner
from fedpu.priors import Priors, set_priors
from fedpu.randomness import numpy_generator


def cover_exists(holds: np.ndarray, wanted: list[int], overlap: bool) -> bool:
    """Try every choice of classes for every client."""
    classes = holds.shape[1]
    choices = [list(itertools.combinations(np.flatnonzero(row), n)) for row, n in zip(holds, wanted, strict=True)]
    for sets in itertools.product(*choices):
        chosen = [c for s in sets for c in s]
        if set(chosen) == set(range(classes)) and (overlap or len(chosen) == classes):
            return True
    return False


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_a_cover_is_found_exactly_when_one_exists(seed: int, clients: int, classes: int, overlap: bool) -> None:
    rng = np.random.default_rng(seed)
    holds = rng.random((clients, classes)) < 0.6
    wanted = [int(rng.integers(0, row.sum() + 1)) for row in holds]
    exists = cover_exists(holds, wanted, overlap)
    try:
        chosen = assign_positive(holds, np.array(wanted), overlap, rng)
    except LabellingError:
        assert not exists
        return
    assert exists
    assert (chosen <= holds).all()
    assert chosen.sum(axis=1).tolist() == wanted
    assert chosen.any(axis=0).all()
    if not overlap:
        assert (chosen.sum(axis=0) == 1).all()


@pytest.mark.parametrize("seed", range(20))
def test_the_papers_hardest_split_is_always_covered(digits: Dataset, seed: int) -> None:
    partition = Classes(clients=10, classes_per_client=5).split(digits, seed)
    federation, _ = label(digits, partition, Labelling(positive=1), seed)
    assert (federation.positive.sum(dim=0) == 1).all()
    counts = [4, 4, 3, 3, 2, 2, 1, 1, 1, 1]
    federation, _ = label(digits, partition, Labelling(positive=counts, overlap=True), seed)
    assert federation.positive.sum(dim=1).tolist() == counts
    assert federation.positive.any(dim=0).all()


@pytest.mark.parametrize("fraction", ["1/3", 0.5, "2/3", 1.0])
def test_the_asked_fraction_of_each_positive_class_is_labelled(digits: Dataset, fraction: str | float) -> None:
    partition = Iid(clients=5).split(digits, 0)
    labelling = Labelling(positive=2, fraction=fraction)
    federation, hidden = label(digits, partition, labelling, 0)
    for k in range(5):
        mine = federation.owner == k
        for cls in range(10):
            held = hidden.labels[mine] == cls
            labelled = federation.labels[mine] == cls
            expected = round(float(labelling.fraction) * int(held.sum())) if federation.positive[k, cls] else 0
            assert int(labelled.sum()) == expected
            assert bool((labelled <= held).all())


@pytest.mark.parametrize("scenario", ["censored", "case-control"])
def test_a_number_per_class_can_be_labelled_instead(digits: Dataset, scenario: str) -> None:
    partition = Iid(clients=5).split(digits, 0)
    labelling = Labelling(positive=2, per_class=5, scenario=scenario)
    federation, hidden = label(digits, partition, labelling, 0)
    assert torch.equal(federation.labelled_counts, 5 * federation.positive)
    given = federation.labels >= 0
    assert torch.equal(federation.labels[given], hidden.labels[given])
    other, there = label(digits, partition, labelling, 1)
    chosen = [
        set(truth.examples[f.rows[f.labels >= 0]].tolist()) for f, truth in ((federation, hidden), (other, there))
    ]
    assert chosen[0] != chosen[1], "which ones is a matter of the seed"
    whole, _ = label(digits, partition, Labelling(positive=2), 0)
    assert torch.equal(federation.priors, whole.priors), "class shares are those of all of a client's data"


def test_a_client_that_has_fewer_than_the_number_per_class_is_told(digits: Dataset) -> None:
    partition = Iid(clients=5).split(digits, 0)
    held = np.stack([np.bincount(digits.labels.numpy()[partition[k]], minlength=10) for k in range(5)])
    everything = {"positive": 10, "overlap": True}
    label(digits, partition, Labelling(per_class=int(held.min()), **everything), 0)
    with pytest.raises(LabellingError, match=rf"per_class = {held.min() + 1}.*which holds {held.min()}\."):
        label(digits, partition, Labelling(per_class=int(held.min()) + 1, **everything), 0)
    least = Labelling(
        positive=[[int(k) for k in np.flatnonzero(row >= 28)] for row in held], overlap=True, per_class=28
    )
    label(digits, partition, least, 0)  # only positive classes need as many


def test_a_fraction_and_a_number_per_class_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match=r"fraction = 0\.3 and per_class = 5 exclude each other.*Remove one"):
        Config.from_dict({"labelling": {"fraction": 0.3, "per_class": 5}})
    assert Config.from_dict({"labelling": {"fraction": 0.5, "per_class": 5}}).labelling.per_class == 5
    several = Config.from_dict({"labelling": {"per_class": 5}})
    assert Config.from_dict(several.to_dict()) == several


def test_clients_hold_what_the_partition_gave_them(digits: Dataset) -> None:
    partition = Dirichlet(clients=4).split(digits, 0)
    federation, hidden = label(digits, partition, Labelling(positive=[3, 3, 3, 3], overlap=True), 0)
    for k in range(4):
        client = federation.client(k)
        mine = hidden.examples[federation.rows[federation.span(k)]].numpy()
        assert sorted(mine) == sorted(partition[k])
        assert torch.equal(client.inputs[client.rows], digits.inputs[mine])
        assert len(client.inputs) == len(partition[k]), "a client holds its own examples and no others"
        assert int(federation.sizes[k]) == len(partition[k])
        expected = np.bincount(digits.labels.numpy()[partition[k]], minlength=10) / len(partition[k])
        np.testing.assert_allclose(client.priors.numpy(), expected, atol=1e-6)
    assert torch.equal(hidden.labels, digits.labels[hidden.examples[federation.rows]])


def test_in_the_case_control_scenario_unlabelled_data_are_the_whole_sample(digits: Dataset) -> None:
    partition = Iid(clients=5).split(digits, 0)
    censored, _ = label(digits, partition, Labelling(positive=2), 0)
    federation, _ = label(digits, partition, Labelling(positive=2, scenario="case-control"), 0)
    for k in range(5):
        client, other = federation.client(k), censored.client(k)
        assert sorted(client.rows[client.labels < 0].tolist()) == list(range(len(partition[k])))
        assert sorted(client.rows[client.labels >= 0].tolist()) == sorted(other.rows[other.labels >= 0].tolist())
    assert torch.equal(federation.sizes, censored.sizes)


def test_data_that_are_partly_labelled_are_taken_as_they_are() -> None:
    y = np.array([0, -1, 0, 1, -1, 1, 2, -1, 2, 2])
    x = np.random.default_rng(0).normal(size=(10, 3))
    data = Dataset.from_arrays(
        x, y, x_test=x[:3], y_test=[0, 1, 2], client=np.array([0] * 5 + [1] * 5), classes=["a", "b", "c"]
    )
    partition = Iid(clients=2).split(data, 0)
    federation, hidden = label(data, partition, Labelling(positive="as-given"), 0)
    assert torch.equal(federation.labels, data.labels[hidden.examples[federation.rows]])
    assert federation.priors is None
    with pytest.raises(LabellingError, match="as-given"):
        label(data, partition, Labelling(positive=1), 0)
    with pytest.raises(LabellingError, match="trained on every label"):
        label_everything(data, partition, 0)


def test_everything_can_be_labelled(digits: Dataset) -> None:
    federation, hidden = label_everything(digits, Iid(clients=3).split(digits, 0), 0)
    assert torch.equal(federation.labels, hidden.labels)
    assert federation.positive.all()


REFUSALS = {
    "more positive classes than the client has": ({"positive": 11}, "client 0 for 11 positive classes"),
    "a class nobody labels": ({"positive": 1}, "labelled by nobody"),
    "too many without overlap": ({"positive": 3}, "overlap = true"),
    "a list of the wrong length": ({"positive": [1, 2]}, "2 entries for 5 clients"),
    "a class that does not exist": ({"positive": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 10]]}, "names class 10"),
    "explicit sets that leave a class out": (
        {"positive": [[0, 1], [2, 3], [4, 5], [6, 7], [8]]},
        "Nobody labels class 9",
    ),
    "explicit sets that overlap": (
        {"positive": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9, 0]]},
        "Class 0 is positive for 2 clients",
    ),
}


@pytest.mark.parametrize(("values", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_can_not_be_labelled_is_refused_in_a_sentence(digits: Dataset, values: dict, message: str) -> None:
    with pytest.raises(LabellingError, match=message):
        label(digits, Iid(clients=5).split(digits, 0), Labelling(**values), 0)


def test_a_client_can_not_label_a_class_it_does_not_hold(digits: Dataset) -> None:
    partition = Classes(clients=10, classes_per_client=1).split(digits, 0)
    wrong = [[c] for c in range(10)]
    with pytest.raises(LabellingError, match="holds no example of that class"):
        label(digits, partition, Labelling(positive=wrong), 0)


def test_nothing_that_a_federation_refers_to_holds_a_hidden_label(digits: Dataset) -> None:
    federation, hidden = label(digits, Iid(clients=5).split(digits, 0), Labelling(positive=2), 0)
    seen: set[int] = set()
    stack: list[object] = [federation, *(federation.client(k) for k in range(5)), federation.owner]
    poison = [hidden.labels, digits.labels]
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, type):
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            for secret in poison:
                assert thing.untyped_storage().data_ptr() != secret.untyped_storage().data_ptr()
                unlabelled = federation.labels < 0
                if thing.shape == federation.labels.shape:
                    # Chance agrees in a tenth of the cases; a copy of the truth would agree in all of them.
                    assert (thing[unlabelled] == hidden.labels[unlabelled]).float().mean() < 0.5
            continue
        if isinstance(thing, dict | list | tuple) or hasattr(thing, "__dict__"):
            stack.extend(gc.get_referents(thing))


@pytest.mark.parametrize("partitioner", [Classes(clients=10, classes_per_client=2), Dirichlet(clients=5, alpha=1.0)])
def test_the_order_of_a_clients_examples_says_nothing_of_their_classes(
    digits: Dataset, partitioner: Partitioner
) -> None:
    """Guess from positions alone: an unlabelled example between labelled ones of a class would be of that class."""
    federation, hidden = label(digits, partitioner.split(digits, 0), Labelling(positive=2, overlap=True), 0)
    right = wrong = 0
    for k in range(len(federation)):
        labels, truth = federation.client(k).labels, hidden.labels[federation.span(k)]
        for cls in labels[labels >= 0].unique():
            places = (labels == cls).nonzero()[:, 0]
            inside = torch.zeros_like(labels, dtype=torch.bool)
            inside[places.min() : places.max() + 1] = True
            unknown = labels < 0
            if not (unknown & inside).any():
                continue
            base = float((truth[unknown] == cls).float().mean())
            right += float((truth[unknown & inside] == cls).float().mean()) - base
            wrong += 1
    assert abs(right / wrong) < 0.05


def undone(federation: Federation, partition: Partition, seed: int, *secret: int) -> torch.Tensor:
    """Return where each example was before the shuffle, by somebody who knows the seed and who holds which rows."""
    shuffled = partition.shuffled(seed, secret)
    return torch.from_numpy(shuffled.rows)[federation.rows]


def test_whoever_knows_the_seed_can_not_undo_the_shuffle(digits: Dataset) -> None:
    """On data sorted by class the place of an example tells its class: an attack on whatever hides the place."""
    order = torch.argsort(digits.labels, stable=True)
    data = replace(digits, inputs=digits.inputs[order], labels=digits.labels[order])
    partition = Iid(clients=5).split(data, 0)
    federation, hidden = label(data, partition, Labelling(positive=2), 0)
    unlabelled = federation.labels < 0
    known = data.labels  # sorted, so that their number in each class is all that it takes to know them

    def guessed(*secret: int) -> float:
        found = known[undone(federation, partition, 0, *secret)] == hidden.labels
        return float(found[unlabelled].float().mean())

    assert guessed(*data.order_key) == 1.0, "it takes the data in their own order"
    assert guessed() < 0.2
    in_another_order = replace(data, inputs=federation.inputs)
    assert guessed(*in_another_order.order_key) < 0.2


def test_whoever_knows_the_seed_can_not_tell_which_labels_were_drawn(digits: Dataset) -> None:
    """Those that draw the lowest numbers keep their label: with the numbers, a low one without a label is negative."""
    federation, hidden = label(digits, Iid(clients=5).split(digits, 0), Labelling(positive=2), 0)

    def negatives_found(*secret: int) -> float:
        drawn = torch.from_numpy(numpy_generator(0, "labels", *secret).random(len(federation.labels)))
        low = (federation.labels < 0) & (drawn < 0.3)
        return float(federation.positive[federation.owner[low], hidden.labels[low]].float().mean())

    assert negatives_found(*digits.order_key) == 0.0
    base = federation.labels < 0
    among_all = float(federation.positive[federation.owner[base], hidden.labels[base]].float().mean())
    assert negatives_found() == pytest.approx(among_all, abs=0.05)


@pytest.mark.parametrize("name", [name for name in METHODS if not METHODS[name]().needs_priors])
def test_a_method_that_needs_no_priors_is_not_handed_the_true_ones(tiny_config: Config, name: str) -> None:
    prepared = prepare(tiny_config.with_(f"method.name={name}"))
    assert prepared.federation.priors is None
    assert all(prepared.federation.client(k).priors is None for k in range(5))
    assert prepared.true_priors is not None, "evaluation may see them"


@pytest.mark.parametrize(("source", "tells"), [("known", True), ("given", False), ("estimated", False)])
def test_of_two_examples_known_shares_tell_the_hidden_class_and_others_do_not(source: str, tells: bool) -> None:
    """A method that wants to know: what a client's shares leave over when its labelled example is taken off."""
    y = np.array([0, 1, 1, 2, 2, 0])
    data = Dataset.from_arrays(
        np.eye(6), y, x_test=np.eye(6), y_test=y, client=np.array([0, 0, 1, 1, 2, 2]), classes=["a", "b", "c"]
    )
    split = Column().split(data, 0)
    federation, hidden = label(data, split, Labelling(positive=[[0], [1], [2]], fraction=1.0), 0)
    values = 1 / 3 if source == "given" else None
    federation = set_priors(federation, Priors(source=source, values=values))
    for k in range(3):
        client, truth = federation.client(k), hidden.labels[federation.span(k)]
        assert sorted(client.labels.tolist()) == [-1, k]
        assert client.priors is not None
        left = 2 * client.priors - torch.bincount(client.labels[client.labels >= 0], minlength=3)
        possible = torch.nonzero(left > 0.1)[:, 0].tolist()
        assert int(truth[client.labels < 0]) in possible
        assert (len(possible) == 1) == tells
