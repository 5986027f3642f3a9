"""The contract that every registered method keeps: found by name, tested here with no other edit."""

from __future__ import annotations

import pytest

from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.method import METHODS
from fedpu.testing import check_method


@pytest.mark.parametrize("name", list(METHODS))
def test_it_keeps_every_promise_of_a_method(name: str) -> None:
    check_method(METHODS[name])


def test_fedpu_learns_what_positive_only_can_not(tiny_config: Config) -> None:
    one_each = ["partition.clients=10", "labelling.positive=1"]
    longer = tiny_config.with_("aggregation.rounds=20", "aggregation.batch_size=20", *one_each)
    positive_only, fedpu, supervised = (
        sum(run(longer.with_(f"method.name={name}", f"seed={seed}")).accuracy for seed in (0, 1)) / 2
        for name in ("positive-only", "fedpu", "supervised")
    )
    assert positive_only + 0.1 < fedpu < supervised + 0.02


@pytest.mark.parametrize("surrogate", ["log", "absolute", "sigmoid", "released-code", "released-code-older"])
def test_every_surrogate_can_be_chosen(tiny_config: Config, surrogate: str) -> None:
    result = run(tiny_config.with_(f"method.surrogate={surrogate}", "aggregation.rounds=1"))
    assert set(result.curve[0]["risk"]) >= {"positive", "unlabelled", "total"}
