"""What a method may ask for besides a loss: views, batches, a teacher, a state, something shared. Whatever it asks, all
engines of one machine give the same, and a run that was stopped goes on to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedpu.applications.experiment import resume, run
from fedpu.applications.prepared import prepare
from fedpu.applications.training import Result, job_of
from fedpu.config import Config
from fedpu.method import METHODS as BUILT_IN
from fedpu.method import Batch, ClientRound, FedPU, Forward, Method, Outputs, Preparation, mixed_batches
from fedpu.risk import RiskConstants, Terms, plain_constants
from fedpu.round import Tensors, Work
from lively import LIVELY

SHIFTED = ['augmentation.weak=["shift"]', 'augmentation.strong=["shift", "noise"]', "augmentation.shift=1"]


class Plain(Method):
    """Cross-entropy on labelled data, and on everything towards the targets of the received model."""

    def constants(self, summary, co_negatives, clients):  # type: ignore[no-untyped-def]
        return plain_constants(summary.positive, torch.zeros(summary.positive.shape))

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        logits, known = forward(batch.inputs), batch.labels >= 0
        loss = F.cross_entropy(logits, batch.labels.clamp(min=0), reduction="none")
        own = (loss * known).sum() / known.sum().clamp(min=1)
        return {"own": own, "total": own}


class Teacher(Plain):
    """Two views, targets of the received model, an average of them that stays, and a mean that is shared."""

    views: ClassVar[tuple[str, ...]] = ("weak", "strong")

    def start(self, client) -> Tensors:  # type: ignore[no-untyped-def]
        return {"average": torch.zeros(len(client.labels), len(client.positive)), "rounds": torch.tensor(0)}

    def shares(self, classes: int) -> Tensors:
        return {"mean": torch.full((classes,), 1 / classes)}

    def prepare(self, now: ClientRound) -> Preparation:
        targets = now.outputs().softmax(dim=1).float() * (now.shared["mean"] + 0.1)
        average = 0.5 * now.state["average"] + 0.5 * targets
        noise = torch.rand(len(average), 1, generator=now.generator("noise"))
        state = {"average": average, "rounds": now.state["rounds"] + 1}
        return Preparation({"target": average + 0.01 * noise}, state, {"mean": targets.mean(dim=0)})

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        own = super().objective(forward, batch, constants)["own"]
        strong = forward(batch.views["strong"]).log_softmax(dim=1)
        taught = -(batch.examples["target"] * strong).sum(dim=1).mean() * (1 + float(batch.state["rounds"]))
        return {"own": own, "taught": taught, "total": own + taught}


class Mixed(Teacher):
    """Three labelled and nine unlabelled examples a batch; its state is what it has learned."""

    def batches(self, labels: Tensor, work: Work, generator: Callable[[int], torch.Generator]) -> list[Tensor]:
        return mixed_batches(labels, work, generator, labelled=3, unlabelled=9)

    def finish(self, now: ClientRound, before: Preparation, outputs: Outputs) -> Preparation:
        learned = outputs().softmax(dim=1).float()
        return Preparation({}, before.state | {"average": learned}, {"mean": learned.mean(dim=0)})


class Mixing(Plain):
    """Calls the network on inputs of its own making."""

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        loss = F.cross_entropy(forward(0.5 * batch.inputs), batch.labels.clamp(min=0))
        return {"own": loss, "total": loss}


class Softer(FedPU):
    """An objective of its own on top of one that has a fast form."""

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        terms = super().objective(forward, batch, constants)
        return terms | {"total": 0.1 * terms["total"]}


METHODS = [Plain(), Teacher(), Mixed(), Mixing(), Softer()]


def configured(tiny_config: Config, method: Method, *changes: str) -> Config:
    config = tiny_config.with_("aggregation.lr=0.05", "aggregation.batch_size=30", *changes)
    return config.model_copy(update={"method": method})


def assert_close(one: Result, other: Result) -> None:
    for name, value in other.model.state_dict().items():
        torch.testing.assert_close(one.model.state_dict()[name], value, rtol=2e-5, atol=2e-5)
    for ours, theirs in zip(one.curve, other.curve, strict=True):
        assert ours["risk"] == pytest.approx(theirs["risk"], rel=1e-3, abs=1e-4)


def bits(result: Result) -> bytes:
    return b"".join(value.numpy().tobytes() for value in result.model.state_dict().values())


class Stop(Exception):
    """The run ends here."""


def stop(line: dict[str, object]) -> None:
    if line["round"] == 2:
        raise Stop


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize(
    "changes",
    [
        [],
        SHIFTED,
        [*SHIFTED, "aggregation.name=fedsgd"],
        [
            *SHIFTED,
            "partition.clients=40",
            "aggregation.participation=0.4",
            "labelling.positive=1",
            "labelling.overlap=true",
            "aggregation.batch_size=7",
        ],
        [
            "priors.source=estimated",
            "priors.trust=0",
            "priors.every=1",
            "priors.estimator=em",
        ],
    ],
    ids=["plain", "views", "full batches", "many clients", "estimated priors"],
)
def test_the_fast_engine_gives_what_the_reference_gives(
    tiny_config: Config, method: Method, changes: list[str]
) -> None:
    config = configured(tiny_config, method, *changes)
    assert_close(run(config), run(config.with_("engine.name=reference")))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("engine", ["local", "reference"])
def test_same_bits_for_any_workers_and_after_a_stop(
    tiny_config: Config, method: Method, engine: str, tmp_path: Path
) -> None:
    config = configured(tiny_config, method, *SHIFTED, f"engine.name={engine}", "aggregation.participation=0.6")
    whole = run(config)
    assert bits(run(config.with_("engine.workers=2"))) == bits(whole)
    with pytest.raises(Stop):
        run(config, out=tmp_path / "run", on_round=stop)
    assert bits(resume(tmp_path / "run")) == bits(whole)


@pytest.mark.parametrize("engine", ["local", "reference"])
@pytest.mark.parametrize("name", list(BUILT_IN))
def test_every_method_has_the_same_bits_for_any_workers_and_after_a_stop(
    tiny_config: Config, name: str, engine: str, tmp_path: Path
) -> None:
    lively = [*SHIFTED, *LIVELY.get(name, []), "aggregation.rounds=4", f"engine.name={engine}"]
    config = tiny_config.with_(f"method.name={name}", "aggregation.participation=0.6", *lively)
    whole = run(config)
    assert bits(run(config.with_("engine.workers=2"))) == bits(whole)
    with pytest.raises(Stop):
        run(config, out=tmp_path / "run", on_round=stop)
    assert bits(resume(tmp_path / "run")) == bits(whole)


def test_views_change_what_is_learned(tiny_config: Config) -> None:
    plain, shifted = (run(configured(tiny_config, Plain(), *changes)) for changes in ([], SHIFTED))
    assert bits(plain) != bits(shifted)


def test_a_state_stays_with_its_client_and_something_shared_is_the_mean(tiny_config: Config) -> None:
    from fedpu.algorithm import rounds
    from fedpu.applications.training import first_state

    config = configured(tiny_config, Teacher())
    federation = prepare(config).federation
    job = job_of(config, federation)
    state = first_state(config, job.initial_model(), len(federation), 10)
    with config.engine.start(job) as clients:
        *_, last = rounds(clients, config.aggregation, state, config.seed)
        states = clients.states()
    assert sorted(states) == list(range(len(federation)))
    assert all(int(states[k]["method.rounds"]) == config.aggregation.rounds for k in states)
    assert not torch.equal(states[0]["method.average"][0], states[1]["method.average"][0])
    assert last.state.shared["mean"].shape == (10,)
    assert float(last.state.shared["mean"].sum()) != pytest.approx(1.0, abs=1e-6)


def test_inputs_of_its_own_making_are_no_guess_of_the_fast_engine(tiny_config: Config) -> None:
    """With logits in place of inputs, half of them would be half of the logits."""
    config = configured(tiny_config, Mixing())
    assert_close(run(config), run(config.with_("engine.name=reference")))


def test_a_rewritten_objective_has_no_fast_form() -> None:
    assert FedPU().linear_form() is not None
    assert Softer().linear_form() is None
