"""What clients hold out: in proportion, by example, and out of everything that training sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpu.data import Dataset
from fedpu.labelling import Federation, HiddenTruth, Labelling, draw_held_out, label, split
from fedpu.partition import Dirichlet, Iid


def labelled(digits: Dataset, clients: int = 5, **options: object) -> tuple[Federation, HiddenTruth]:
    return label(digits, Iid(clients=clients).split(digits, 0), Labelling(positive=2, **options), 0)  # type: ignore[arg-type]


def test_every_label_of_every_client_is_held_out_in_proportion(digits: Dataset) -> None:
    federation, hidden = labelled(digits)
    rest, _, held = split(federation, hidden, draw_held_out(federation, 0.2, 0))
    for k in range(5):
        whole, part = federation.client(k), held.client(k)
        for cls in range(-1, 10):
            expected = 0.2 * int((whole.labels == cls).sum())
            assert abs(int((part.labels == cls).sum()) - expected) <= 1
        assert len(part.labels) + len(rest.client(k).labels) == len(whole.labels)
        assert torch.equal(rest.client(k).positive, whole.positive)


@pytest.mark.parametrize("scenario", ["censored", "case-control"])
def test_no_example_is_on_both_sides_and_none_is_lost(digits: Dataset, scenario: str) -> None:
    federation, hidden = labelled(digits, scenario=scenario)
    drawn = draw_held_out(federation, 0.1, 0)
    rest, truth, held = split(federation, hidden, drawn)
    assert torch.equal(torch.sort(torch.cat([hidden.examples[drawn], truth.examples])).values, torch.arange(1442))
    assert torch.equal(rest.inputs, digits.inputs[truth.examples])
    assert torch.equal(held.inputs, digits.inputs[hidden.examples[drawn]])
    assert torch.equal(truth.labels, digits.labels[truth.examples[rest.rows]])
    for part in (rest, held):
        for k in range(5):
            client = part.client(k)
            assert len(client.inputs) == int(part.sizes[k])
            assert bool((client.rows < len(client.inputs)).all())
            assert bool((client.rows >= 0).all())
    labels = digits.labels[hidden.examples[drawn]][held.rows]
    assert bool((held.labels[held.labels >= 0] == labels[held.labels >= 0]).all())
    if scenario == "case-control":
        assert int((held.labels < 0).sum()) == len(held.inputs), "everything is there unlabelled"


def test_few_examples_are_held_out_as_often_as_many(digits: Dataset) -> None:
    partition = Dirichlet(clients=100, min_examples=2).split(digits, 0)
    federation, _ = label(digits, partition, Labelling(positive=[1] * 100, overlap=True), 0)
    counts = np.zeros(2)
    given = federation.labels.numpy() >= 0
    groups = federation.owner * 11 + federation.labels + 1
    alone = (torch.bincount(groups)[groups] == 1).numpy()
    for seed in range(60):
        held = draw_held_out(federation, 0.1, seed).numpy()
        assert not (held & alone).any(), "the only example of a label was taken"
        counts += [held[given & ~alone].mean(), held[~given & ~alone].mean()]
    np.testing.assert_allclose(counts / 60, 0.1, atol=0.006)


def test_the_draw_follows_the_seed_and_no_hidden_label(digits: Dataset) -> None:
    federation, hidden = labelled(digits)
    first = draw_held_out(federation, 0.1, 0)
    hidden.labels.fill_(3)
    assert torch.equal(draw_held_out(federation, 0.1, 0), first)
    assert not torch.equal(draw_held_out(federation, 0.1, 1), first)
