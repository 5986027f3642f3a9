"""Classes that break one promise each are caught by name; those that keep all of them pass, slow ones among them."""

from __future__ import annotations

import gc
import random
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import nn

import fedpu
from fedpu.aggregation import FedAvg
from fedpu.labelling import HiddenTruth
from fedpu.method import ConventionalPU, PositiveOnly, mixed_batches
from fedpu.partition import Iid, Saved
from fedpu.risk import CROSS_ENTROPY_FORM
from fedpu.testing import ContractError, check_aggregation, check_method, check_model, check_partition
from fedpu.testing.trial import LOCAL, REFERENCE, Trial


class Plain(fedpu.Method):
    """Cross-entropy on labelled examples; every batch has all kinds."""

    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        labelled = (batch.labels >= 0).float()
        losses = F.cross_entropy(forward(batch.inputs), batch.labels.clamp(min=0), reduction="none")
        loss = (losses * labelled * self.weights(batch)).sum() / labelled.sum().clamp(min=1)
        return {"positive": loss, "total": loss}

    def weights(self, batch: Any) -> Any:
        return 1.0


class PeeksAtPlaces(Plain):
    def weights(self, batch: Any) -> Any:
        return torch.linspace(0, 1, len(batch.labels))


class PeeksAtRows(Plain):
    def prepare(self, now: Any) -> Any:
        return fedpu.Preparation(examples={"place": now.client.rows / len(now.client.rows)})

    def weights(self, batch: Any) -> Any:
        return batch.examples["place"]


class DrawsInOrder(Plain):
    def batches(self, labels: Any, work: Any, generator: Any) -> Any:
        generator(0)
        return list(torch.arange(len(labels)).split(work.batch_size or len(labels)))


class DrawsTheFirst(Plain):
    def batches(self, labels: Any, work: Any, generator: Any) -> Any:
        return [torch.randperm(50, generator=generator(0))[:20]]


class IgnoresStragglers(Plain):
    def batches(self, labels: Any, work: Any, generator: Any) -> Any:
        return list(torch.randperm(len(labels), generator=generator(0)).split(10))


class RemembersOnTheClass(Plain):
    seen: ClassVar[list[int]] = []

    def prepare(self, now: Any) -> Any:
        self.seen.append(now.round)
        return fedpu.Preparation(examples={"weight": torch.full((len(now.client.labels),), 1 / len(self.seen))})

    def weights(self, batch: Any) -> Any:
        return batch.examples["weight"]


REMEMBERED: dict[str, float] = {}


class RemembersInTheModule(Plain):
    """Runs one after the other are the same, since each begins anew: only runs side by side are not."""

    def prepare(self, now: Any) -> Any:
        REMEMBERED["mean"] = 0.0 if now.round == 0 else REMEMBERED["mean"] + float(now.outputs().mean())
        return fedpu.Preparation(examples={"weight": torch.full((len(now.client.labels),), 1 + REMEMBERED["mean"])})

    def weights(self, batch: Any) -> Any:
        return batch.examples["weight"]


class DrawsFromTorch(Plain):
    def weights(self, batch: Any) -> Any:
        return float(torch.rand(()))


class DrawsFromNumPy(Plain):
    def weights(self, batch: Any) -> Any:
        return float(np.random.rand())  # noqa: NPY002 - what is to be caught


class DrawsFromPython(Plain):
    def weights(self, batch: Any) -> Any:
        return random.random()


class ChangesItsState(Plain):
    def start(self, client: Any) -> Any:
        return {"count": torch.zeros(1)}

    def prepare(self, now: Any) -> Any:
        now.state["count"].add_(1)
        return fedpu.Preparation(state=now.state)


class NeedsItsState(Plain):
    """It looks for what only a client that has taken part before can have."""

    def prepare(self, now: Any) -> Any:
        return fedpu.Preparation(
            state={"count": torch.ones(1)} if now.round == 0 else now.state | {"n": now.state["count"] + 1}
        )


@cache
def hidden_truths() -> list[HiddenTruth]:
    return [found for found in gc.get_objects() if type(found) is HiddenTruth]


class SeesTheTruth(Plain):
    def weights(self, batch: Any) -> Any:
        return sum(float(truth.labels.float().mean()) for truth in hidden_truths())


class TotalIsMore(Plain):
    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        terms = super().objective(forward, batch, constants)
        return terms | {"total": 2 * terms["total"]}


class HasNoGradient(Plain):
    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        loss = (forward(batch.inputs).argmax(dim=1) != batch.labels).float().mean()
        return {"wrong": loss, "total": loss}


class HasNoTotal(Plain):
    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        return {"loss": super().objective(forward, batch, constants)["total"]}


class NeedsLabels(Plain):
    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        labelled = batch.labels >= 0
        loss = F.cross_entropy(forward(batch.inputs)[labelled], batch.labels[labelled])
        return {"positive": loss, "total": loss}


class HasAnotherForm(Plain):
    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        loss = 2 * super().objective(forward, batch, constants)["total"]
        return {"positive": loss, "total": loss}

    def linear_form(self) -> Any:
        return CROSS_ENTROPY_FORM


WRONG_METHODS = {
    PeeksAtPlaces: "order of a client's examples tells it nothing.*one batch changed",
    PeeksAtRows: "order of a client's examples tells it nothing.*prepare found",
    DrawsInOrder: "batches are drawn at random|a straggler does only its share",
    DrawsTheFirst: "batches are drawn at random.*far more often",
    IgnoresStragglers: "a straggler does only its share.*cut_short",
    RemembersOnTheClass: "remembers nothing.*second run in the same process",
    RemembersInTheModule: "remembers nothing.*another run between its own",
    DrawsFromTorch: "never from a global generator.*Draw from the generator",
    DrawsFromNumPy: "never from a global generator",
    DrawsFromPython: "never from a global generator",
    ChangesItsState: r"leaves what it is given as it is.*count.*in place",
    NeedsItsState: "first time in a late one. It raised KeyError",
    SeesTheTruth: "hidden labels are out of its reach",
    TotalIsMore: "'total' is the sum of the other terms",
    HasNoGradient: "total has a gradient",
    HasNoTotal: "'total' among them. It returned {loss: a tensor",
    NeedsLabels: "terms of its loss are finite.*no labelled example",
    HasAnotherForm: "all engines give the same model.*linear_form",
}


@pytest.mark.parametrize(("wrong", "message"), WRONG_METHODS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_method_that_breaks_a_promise_is_caught(wrong: type[fedpu.Method], message: str) -> None:
    hidden_truths.cache_clear()
    REMEMBERED.clear()
    with pytest.raises(ContractError, match=f"(?s)^{wrong.__name__}: .*({message})") as caught:
        check_method(wrong)
    assert isinstance(caught.value, AssertionError)
    assert "\n" not in str(caught.value)


class MakesInputs(Plain):
    """Correct, and slow: the network is called on what no engine can foresee."""

    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        labelled = batch.labels >= 0
        if not labelled.any():
            return {"total": forward(0.9 * batch.inputs).sum() * 0}
        loss = F.cross_entropy(forward(0.9 * batch.inputs[labelled]), batch.labels[labelled])
        return {"total": loss}


class MakesInputsLater(Plain):
    """Correct, and slow from the second round on, which nobody could know before."""

    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        if batch.round == 0:
            return super().objective(forward, batch, constants)
        return super().objective(lambda inputs: forward(0.9 * inputs), batch, constants)


class LacksATerm(ConventionalPU):
    """Correct: a batch without labelled examples has a term less. Half of a batch is labelled where it can be."""

    def batches(self, labels: Any, work: Any, generator: Any) -> Any:
        return mixed_batches(labels, work, generator, labelled=4, unlabelled=16)

    def objective(self, forward: Any, batch: Any, constants: Any) -> Any:
        terms = super().objective(forward, batch, constants)
        return {name: term for name, term in terms.items() if name == "total" or term != 0}


@pytest.mark.parametrize("right", [MakesInputs, MakesInputsLater, LacksATerm])
def test_a_method_that_keeps_all_promises_passes(right: type[fedpu.Method]) -> None:
    check_method(right)
    trial = Trial.of(right(), FedAvg())
    assert REFERENCE.slow_because(trial.job) is None
    told = "the method calls the network on inputs of its own making"
    assert LOCAL.slow_because(trial.job) == (told if right is MakesInputs else None)


class MedianOfMeans(FedAvg):
    takes: ClassVar[Any] = "mean"

    def combine(self, state: Any, updates: Any) -> Any:
        models = [update.model for update in updates]
        return state.after(
            {name: torch.stack([one[name] for one in models]).median(dim=0).values for name in state.model}
        )


class ChangesUpdates(FedAvg):
    def combine(self, state: Any, updates: Any) -> Any:
        first, *others = updates
        for other in others:
            for name, value in first.model.items():
                value.add_(other.model[name])
        return state.after({name: value / (1 + len(others)) for name, value in first.model.items()})


class ChangesTheModel(FedAvg):
    def combine(self, state: Any, updates: Any) -> Any:
        for update in updates:
            for name, value in state.model.items():
                value.mul_(0.5).add_(update.model[name], alpha=0.5)
        return state.after(dict(state.model))


class TakesTheFirst(FedAvg):
    def combine(self, state: Any, updates: Any) -> Any:
        return state.after(dict(next(iter(updates)).model))


class LosesBuffers(FedAvg):
    def combine(self, state: Any, updates: Any) -> Any:
        after = super().combine(state, updates)
        return state.after({name: after.model[name] for name in state.parameters})


class KeepsNumbers(FedAvg):
    def combine(self, state: Any, updates: Any) -> Any:
        after = super().combine(state, updates)
        return state.after(after.model, rounds=3)


class KeepsTheRound(FedAvg):
    def combine(self, state: Any, updates: Any) -> Any:
        list(updates)
        return state


class SelectsNobody(FedAvg):
    def select(self, seed: int, round_: int, clients: int) -> list[int]:
        return [k for k in range(clients) if k % 20 == round_]


class SelectsAtRandom(FedAvg):
    def select(self, seed: int, round_: int, clients: int) -> list[int]:
        return [random.randrange(clients)]


class AsksForMore(FedAvg):
    def work(self, seed: int, round_: int, selected: list[int]) -> Any:
        return super().work(seed, round_, [0, *selected])


class CountsOnTheClass(FedAvg):
    count: ClassVar[list[int]] = [0]

    def combine(self, state: Any, updates: Any) -> Any:
        self.count[0] += 1
        after = super().combine(state, updates)
        return state.after({name: value * (1 + 1 / self.count[0]) for name, value in after.model.items()})


class SendsWhatItDoesNotTell(FedAvg):
    def end_client(self, sent: Any, work: Any, state: Any, start: Any, trained: Any, descent: Any) -> Any:
        return fedpu.round.Ending({"steps": torch.tensor([descent.steps])}, state)


WRONG_AGGREGATIONS = {
    MedianOfMeans: 'takes = "mean" only ever adds updates up.*Set takes = "each"',
    ChangesUpdates: "leaves what it is given as it is.*'update 0.*in place in combine",
    ChangesTheModel: "leaves what it is given as it is.*'model",
    TakesTheFirst: "order of updates does not matter",
    LosesBuffers: "keeps its names, shapes and types, buffers",
    KeepsNumbers: "server's state is tensors by name|combine updates. It raised TypeCheckError",
    KeepsTheRound: r"returns the state after the round.*state\.after",
    SelectsNobody: "each round has clients",
    SelectsAtRandom: "selection depends on",
    AsksForMore: "one piece of work for each selected client",
    CountsOnTheClass: "order of updates does not matter|remembers nothing",
    SendsWhatItDoesNotTell: "`returns` tells the names",
}


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG_AGGREGATIONS.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_an_aggregation_that_breaks_a_promise_is_caught(wrong: type[fedpu.Aggregation], message: str) -> None:
    with pytest.raises(ContractError, match=f"^{wrong.__name__}: .*({message})"):
        check_aggregation(wrong)


class LosesOne(Iid):
    def split(self, data: Any, seed: int) -> Any:
        return fedpu.Partition.of([np.arange(10), np.arange(9, len(data.labels) - 1)])


class SplitsAtRandom(Iid):
    def split(self, data: Any, seed: int) -> Any:
        return fedpu.Partition.of(np.array_split(np.random.permutation(len(data.labels)), 5))  # noqa: NPY002


class LooksAtTheTest(Iid):
    def split(self, data: Any, seed: int) -> Any:
        return super().split(data, seed + int(data.test_labels.sum()))


class ReturnsLists(Iid):
    def split(self, data: Any, seed: int) -> Any:
        return [[0, 1], [2]]


class ShufflesTheData(Iid):
    def split(self, data: Any, seed: int) -> Any:
        data.labels.copy_(data.labels.flip(0))
        return super().split(data, seed)


WRONG_PARTITIONS = {
    LosesOne: "exactly one client.*1 examples went to nobody, 1 to several",
    SplitsAtRandom: "NumPy's global generator",
    LooksAtTheTest: "does not look at the test set",
    ReturnsLists: "returned list",
    ShufflesTheData: "leaves the data as they are.*'labels'",
}


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG_PARTITIONS.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_a_partition_that_breaks_a_promise_is_caught(wrong: type[fedpu.Partitioner], message: str) -> None:
    with pytest.raises(ContractError, match=f"^{wrong.__name__}: .*({message})"):
        check_partition(wrong)


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))


class SeedsItself(fedpu.Model):
    def build(self, shape: Any, classes: int) -> Any:
        torch.manual_seed(0)
        return linear(shape, classes)


class DrawsWithNumPy(fedpu.Model):
    def build(self, shape: Any, classes: int) -> Any:
        network = linear(shape, classes)
        network[1].weight.data *= np.random.rand()  # type: ignore[operator,union-attr]  # noqa: NPY002
        return network


class HasTenOutputs(fedpu.Model):
    def build(self, shape: Any, classes: int) -> Any:
        return linear(shape, 10)


class HasNothingToTrain(fedpu.Model):
    def build(self, shape: Any, classes: int) -> Any:
        return linear(shape, classes).requires_grad_(False)


class Offset(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.offset = torch.randn(width)

    def forward(self, x: Any) -> Any:
        return x + self.offset


class HidesATensor(fedpu.Model):
    def build(self, shape: Any, classes: int) -> Any:
        return nn.Sequential(linear(shape, classes), Offset(classes))


class Centred(nn.Module):
    def forward(self, x: Any) -> Any:
        return x - x.mean(dim=0)


class LooksAtTheBatch(fedpu.Model):
    def build(self, shape: Any, classes: int) -> Any:
        return nn.Sequential(linear(shape, classes), Centred())


WRONG_MODELS = {
    SeedsItself: "left PyTorch's generator the same",
    DrawsWithNumPy: "with PyTorch seeded alike|NumPy's global generator",
    HasTenOutputs: r"shape \(8, 10\); it should be \(8, 7\)",
    HasNothingToTrain: "something to train",
    HidesATensor: "state_dict holds all",
    LooksAtTheBatch: "does not depend on the others",
}


@pytest.mark.parametrize(("wrong", "message"), WRONG_MODELS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_model_that_breaks_a_promise_is_caught(wrong: type[fedpu.Model], message: str) -> None:
    with pytest.raises(ContractError, match=f"^{wrong.__name__}: .*({message})"):
        check_model(wrong)


class NeedsSettings(PositiveOnly):
    strength: float = Field()


class Unfinished(fedpu.Method):
    pass


def test_what_can_not_be_checked_is_told() -> None:
    with pytest.raises(ContractError, match="NeedsSettings can't be made with its defaults: strength must be given"):
        check_method(NeedsSettings)
    with pytest.raises(ContractError, match="Unfinished: a class that inherits from Method must define objective"):
        check_method(Unfinished)
    with pytest.raises(TypeError, match="Method"):
        check_method(Iid)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match=r"Saved: it must be able to hand out a data set\. It raised DataError"):
        check_partition(Saved(path="there/is/none.npz"))
    with pytest.raises(ContractError, match="must be found by its name"):
        check_model(lambda shape, classes: linear(shape, classes))
