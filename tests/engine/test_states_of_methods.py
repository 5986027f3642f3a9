"""What a method's parts may count on, whichever engine runs them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fedpu
from fedpu.aggregation import FedAvg
from fedpu.engine import Engine
from fedpu.testing.trial import LOCAL, REFERENCE, TWO_WORKERS, Trial

ENGINES = pytest.mark.parametrize("engine", [REFERENCE, LOCAL, TWO_WORKERS], ids=["reference", "local", "workers"])


class Counting(fedpu.Method):
    uses_unlabelled = False

    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        return {"total": F.cross_entropy(forward(batch.inputs), batch.labels)}

    def start(self, client: Any) -> Any:
        return {"started": torch.ones(1)}


class Kept(Counting):
    """Prepares without a word on the state."""

    def prepare(self, now: Any) -> Any:
        assert set(now.state) == {"started"}
        return fedpu.Preparation(examples={"place": torch.arange(len(now.client.labels))})

    def finish(self, now: Any, before: Any, outputs: Any) -> Any:
        assert before.state == now.state
        return fedpu.Preparation()


class Emptied(Counting):
    """Gives its state up in the first round, and is not started again."""

    def prepare(self, now: Any) -> Any:
        assert set(now.state) == ({"started"} if now.round == 0 else set())
        return fedpu.Preparation(state={})


class Twice(Counting):
    """Asks for the teacher's outputs when it has finished."""

    def finish(self, now: Any, before: Any, outputs: Any) -> Any:
        teacher = now.outputs()
        return fedpu.Preparation(state={"moved": (outputs() - teacher).abs().mean()})


def last(method: fedpu.Method, engine: Engine) -> Any:
    return Trial.of(method, FedAvg(rounds=3, lr=0.05, batch_size=30)).run(engine)


@ENGINES
def test_a_state_stays_as_it_was_unless_there_is_a_new_one(engine: Engine) -> None:
    found = last(Kept(), engine)
    assert all(state["method.started"].item() == 1 for state in found.clients.values())
    assert len(found.clients) == 5


@ENGINES
def test_an_empty_state_is_one_too(engine: Engine) -> None:
    assert dict(last(Emptied(), engine).clients) == {k: {} for k in range(5)}


@ENGINES
def test_outputs_at_the_end_are_those_of_the_trained_model(engine: Engine) -> None:
    assert all(state["method.moved"].item() > 0 for state in last(Twice(), engine).clients.values())


@ENGINES
def test_a_total_alone_is_recorded(engine: Engine) -> None:
    assert all(set(terms) == {"total"} and terms["total"] > 0 for terms in last(Counting(), engine).terms)
