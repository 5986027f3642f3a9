"""Whose priors a client uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpu.data import Dataset
from fedpu.errors import ConfigError
from fedpu.labelling import Labelling, label
from fedpu.partition import Classes, Iid
from fedpu.priors import Priors, set_priors


def test_known_priors_are_the_clients_own_and_global_ones_the_federations(digits: Dataset) -> None:
    partition = Classes(clients=10, classes_per_client=2).split(digits, 0)
    federation, _ = label(digits, partition, Labelling(positive=1), 0)
    known = set_priors(federation, Priors(source="known")).priors
    assert known is not None
    assert ((known > 0).sum(dim=1) == 2).all()
    overall = set_priors(federation, Priors(source="global")).priors
    assert overall is not None
    expected = np.bincount(digits.labels.numpy()) / len(digits.labels)
    np.testing.assert_allclose(overall.numpy(), np.tile(expected, (10, 1)), atol=1e-6)


def test_priors_can_be_given(digits: Dataset) -> None:
    federation, _ = label(digits, Iid(clients=10).split(digits, 0), Labelling(), 0)
    given = set_priors(federation, Priors(source="given", values=0.05))
    assert given.priors is not None
    assert torch.equal(given.priors, torch.full((10, 10), 0.05))
    with pytest.raises(ConfigError, match=r"needs priors\.values"):
        set_priors(federation, Priors(source="given"))
    with pytest.raises(ConfigError, match="2 numbers for 10 classes"):
        set_priors(federation, Priors(source="given", values=[0.5, 0.5]))
    with pytest.raises(ConfigError, match="between 0 and 1"):
        set_priors(federation, Priors(source="given", values=1.5))
    with pytest.raises(ConfigError, match="only with"):
        set_priors(federation, Priors(values=0.1))
    several, _ = label(digits, Iid(clients=5).split(digits, 0), Labelling(positive=2), 0)
    with pytest.raises(ConfigError, match=r"add up to 1\.80 over the positive classes of client 0"):
        set_priors(several, Priors(source="given", values=0.9))


def test_the_scenario_follows_the_labelling_unless_it_is_set(digits: Dataset) -> None:
    federation, _ = label(digits, Iid(clients=10).split(digits, 0), Labelling(scenario="case-control"), 0)
    assert set_priors(federation, Priors()).scenario == "case-control"
    assert set_priors(federation, Priors(scenario="censored")).scenario == "censored"
