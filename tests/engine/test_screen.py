"""Updates of clients that nobody can vouch for: what is no number is left out, what is far too long is cut."""

from __future__ import annotations

import math

import pytest
import torch

from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.engine import Screen
from fedpu.round import Broadcast, Update

SENT = Broadcast({"w": torch.ones(3), "steps": torch.tensor(4)})


def update(client: int, length: float, examples: int = 10, **groups: dict[str, torch.Tensor]) -> Update:
    model = {"w": torch.ones(3) + torch.tensor([length, 0.0, 0.0]), "steps": torch.tensor(5)}
    return Update(client, examples, model, {}, **groups)


def lengths(screen: Screen, updates: list[Update]) -> dict[int, float]:
    return {one.client: float((one.model["w"] - 1).norm()) for one in screen.read(updates)}


def test_an_update_far_longer_than_the_median_is_cut_to_a_multiple_of_it() -> None:
    screen = Screen(SENT, 5.0, lambda k: f"clinic {k}")
    found = lengths(screen, [update(0, 1.0), update(1, 1000.0), update(2, 2.0), update(3, 3.0), update(4, 9.9)])
    assert found == pytest.approx({0: 1.0, 1: 15.0, 2: 2.0, 3: 3.0, 4: 9.9})
    assert screen.cut.keys() == {"clinic 1"}
    assert "norm 1e+03; it was cut to 15" in screen.cut["clinic 1"]


def test_one_with_many_examples_may_go_further() -> None:
    screen = Screen(SENT, 5.0, str)
    found = lengths(screen, [update(0, 1.0), update(1, 12.0, examples=30), update(2, 1.0), update(3, 100.0)])
    assert found == pytest.approx({0: 1.0, 1: 12.0, 2: 1.0, 3: 32.5})


def test_what_goes_beside_the_model_is_bounded_too() -> None:
    screen = Screen(SENT, 2.0, str)
    extras = [{"c": torch.full((4,), value)} for value in (1.0, -1.0, 100.0)]
    taken = list(screen.read([update(k, 1.0, extras=own) for k, own in enumerate(extras)]))
    assert [float(one.extras["c"].norm()) for one in taken] == pytest.approx([2.0, 2.0, 4.0])
    assert "'extras'" in screen.cut["2"]


@pytest.mark.parametrize("bound", [0.0, 5.0])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_what_is_no_number_is_left_out(value: float, bound: float) -> None:
    screen = Screen(SENT, bound, str)
    assert lengths(screen, [update(0, 1.0), update(1, value)]) == {0: 1.0}
    assert screen.left_out.keys() == {"1"}


def test_without_a_bound_nothing_is_held_back() -> None:
    screen = Screen(SENT, 0.0, str)
    read = screen.read(iter([update(0, 1.0), update(1, 1e5)]))
    assert next(read).client == 0
    assert next(read).client == 1
    assert screen.cut == {}


def test_clients_that_have_not_moved_are_no_measure() -> None:
    screen = Screen(SENT, 5.0, str)
    assert lengths(screen, [update(0, 0.0), update(1, 0.0), update(2, 1.0)]) == {0: 0.0, 1: 0.0, 2: 1.0}


def test_nobody_is_no_problem() -> None:
    assert list(Screen(SENT, 5.0, str).read([])) == []


def test_liars_cost_less_when_they_are_cut(tiny_config: Config) -> None:
    lying = tiny_config.with_("faults.scale=1", "faults.scale_by=1000", "aggregation.rounds=5")
    free, cut = run(lying.with_("aggregation.norm_bound=0")), run(lying)
    assert cut.accuracy > free.accuracy
    liar = str(cut.summary["faults"]["scale"][0])
    assert all(liar in line["cut"] for line in cut.curve)
