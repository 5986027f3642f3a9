"""A small federation of real digits, and runs on it that can be stopped, gone on with and compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import safetensors.torch
import torch
from torch import Tensor

from fedpu.aggregation import Aggregation, ServerState
from fedpu.algorithm import rounds
from fedpu.applications.prepared import Prepared, prepare
from fedpu.applications.training import first_state, job_of, serving_of
from fedpu.augmentation import Augmentation
from fedpu.config import Config
from fedpu.data import Dataset, DataSettings, load
from fedpu.engine import Clients, ClientStates, Engine, Job, LocalEngine, ReferenceEngine
from fedpu.labelling import Labelling
from fedpu.method import Method
from fedpu.models import MLP, Model
from fedpu.partition import Iid
from fedpu.round import Tensors, prefixed, under

EXAMPLES, CLIENTS = 300, 5
LOCAL = LocalEngine(workers=1, device="cpu")
TWO_WORKERS = LocalEngine(workers=2, device="cpu")
REFERENCE = ReferenceEngine(workers=1, device="cpu")
SMALL = MLP(hidden=[16])
NEAR = 2e-5
"""how far engines may be from each other"""
SHORT = {"rounds": 3, "local_epochs": 2, "batch_size": 30, "participation": 0.6}
"""settings of an aggregation under which some clients take part for the first time in a late round"""


@cache
def _digits() -> Dataset:
    whole = load(DataSettings(name="digits"))
    return Dataset.from_arrays(
        whole.inputs[:EXAMPLES],
        whole.labels[:EXAMPLES],
        x_test=whole.test_inputs[:100],
        y_test=whole.test_labels[:100],
        client=torch.arange(EXAMPLES) % CLIENTS,
        normalisation=whole.normalisation,
        name="digits",
    )


def digits() -> Dataset:
    """Return three hundred digits, of five clients, whose labels may be overwritten."""
    data = _digits()
    return replace(data, labels=data.labels.clone(), test_labels=data.test_labels.clone())


@dataclass(frozen=True, eq=False)
class Trial:
    """A configuration, its data and its job."""

    config: Config
    data: Dataset
    prepared: Prepared
    job: Job

    @classmethod
    def of(
        cls, method: Method, aggregation: Aggregation, model: Model = SMALL, data: Dataset | None = None, seed: int = 0
    ) -> Trial:
        """Return a trial; a method with a strong view gets one."""
        views = Augmentation()
        if "strong" in method.views:
            views = Augmentation(weak=["shift"], strong=["shift", "noise"], shift=1)
        config = Config(
            seed=seed,
            partition=Iid(clients=CLIENTS),
            labelling=Labelling(positive=2),
            augmentation=views,
            model=model,
            method=method,
            aggregation=aggregation,
        )
        data = data or digits()
        prepared = prepare(config, data)
        return cls(config, data, prepared, job_of(config, prepared.federation))

    def like(self, **changes: int | float) -> Trial:
        """Return the trial with settings of its aggregation changed."""
        aggregation = self.config.aggregation.model_copy(update=changes)
        config = self.config.model_copy(update={"aggregation": aggregation})
        return replace(self, config=config, job=replace(self.job, rule=aggregation))

    def start(self) -> Outcome:
        """Return how things stand before the first round."""
        classes = len(self.data.classes)
        return Outcome(first_state(self.config, self.job.initial_model(), len(self.job.federation), classes))

    def course(self, clients: Clients, start: Outcome | None = None) -> Iterator[Outcome]:
        """Run the rounds that are left one by one."""
        start = start or self.start()
        clients.restore(start.clients)
        terms = list(start.terms)
        serving = serving_of(self.config, self.job.initial_model(), tuple(self.job.federation.inputs.shape[1:]))
        for done in rounds(clients, self.config.aggregation, start.state, self.config.seed, serving=serving):
            terms.append(done.terms)
            yield Outcome(done.state, ClientStates(clients.states()), tuple(terms))

    def run(self, engine: Engine = LOCAL, start: Outcome | None = None, until: int | None = None) -> Outcome:
        """Run the rounds that are left, or those up to one of them."""
        outcome = start or self.start()
        with engine.start(self.job) as clients:
            for outcome in self.course(clients, start):
                if outcome.state.round == until:
                    break
        return outcome


@dataclass(frozen=True, eq=False)
class Outcome:
    """How things stand after a round: with the server, and with the clients."""

    state: ServerState
    clients: ClientStates = field(default_factory=ClientStates)
    terms: tuple[dict[str, float], ...] = ()

    def tensors(self) -> Tensors:
        """Return everything, as a checkpoint holds it."""
        state = self.state
        groups = {"model": state.model, "server": state.extras, "shared": state.shared, "memory": state.memory}
        return prefixed(groups | {"clients": self.clients.to_tensors()})

    def reloaded(self) -> Outcome:
        """Return what is left of it when it has been written to a file and read back."""
        own = {name: value.clone() for name, value in self.tensors().items()}
        tensors = safetensors.torch.load(safetensors.torch.save(own))
        state = replace(
            self.state,
            model=under("model", tensors),
            extras=under("server", tensors),
            shared=under("shared", tensors),
            memory=under("memory", tensors),
        )
        return Outcome(state, ClientStates.from_tensors(under("clients", tensors)), self.terms)

    def differs_from(self, other: Outcome) -> str | None:
        """Return what is not bit for bit the same."""
        return difference(self.tensors(), other.tensors()) or (None if self.terms == other.terms else "terms")

    def far_from(self, other: Outcome) -> str | None:
        """Return what is not the same to within the tolerance of engines."""
        mine, theirs = self.tensors(), other.tensors()
        far = difference(mine, theirs, NEAR)
        if far:
            return far
        for ours, others in zip(self.terms, other.terms, strict=True):
            if ours.keys() != others.keys():
                return f"the terms {', '.join(ours)} and {', '.join(others)}"
            for name, value in ours.items():
                if abs(value - others[name]) > max(1e-4, 1e-3 * abs(others[name])):
                    return f"the term '{name}': {value:.6g} and {others[name]:.6g}"
        return None


def difference(one: Tensors, other: Tensors, tolerance: float = 0.0) -> str | None:
    """Return the name of a tensor that only one has, or that is not the same in both."""
    for name in [*one, *other]:
        if name not in one or name not in other:
            return f"'{name}', which only one of the two has"
        if not same(one[name], other[name], tolerance):
            return f"'{name}'"
    return None


def same(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Are two tensors equal in shape, type and value?"""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if tolerance == 0 or not one.is_floating_point():
        return torch.equal(one, other)
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance)
