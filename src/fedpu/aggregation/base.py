"""The contract of an aggregation: whom the server asks, what it asks of them, and how it combines what comes back.

What it does on the clients' side, if anything, is its part as a :class:`~fedpu.round.ClientRule`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from fedpu.engine import copy_state
from fedpu.errors import TrainingError
from fedpu.randomness import numpy_generator
from fedpu.registry import Choice
from fedpu.round import ClientRule, Tensors, Update, Work


@dataclass(frozen=True, eq=False)
class ServerState:
    """All that the server keeps: rounds done, the global model, and tensors of whatever names a rule needs."""

    round: int
    model: Tensors
    extras: Tensors = field(default_factory=dict)
    """what the aggregation keeps from round to round"""
    shared: Tensors = field(default_factory=dict)
    """the mean of what clients returned for their method in the last round"""
    memory: Tensors = field(default_factory=dict)
    """what the method remembers of clients' updates on the server"""
    once: Tensors = field(default_factory=dict)
    """what was formed privately before the first round: once, since every time would tell more"""
    buffers: frozenset[str] = frozenset()
    """the entries of the model that are not trained: BatchNorm's running statistics, and frozen parameters"""
    clients: int = 1
    """the number of clients in all, K"""
    judged: dict[int, str] = field(default_factory=dict)
    """whose update the aggregation took only in part or not at all in the last round, and why: for the record alone"""
    counted: dict[int, float] = field(default_factory=dict)
    """the part of its share of examples, 0 to 1, that each update had in the last round, where not all: what clients
    returned for their method counts as much
    """

    @classmethod
    def initial(cls, network: nn.Module, clients: int, aggregation: Aggregation, shared: Tensors) -> ServerState:
        """Return the state before the first round."""
        model = copy_state(network)
        buffers = model.keys() - {name for name, p in network.named_parameters() if p.requires_grad}
        state = cls(0, model, shared=shared, buffers=frozenset(buffers), clients=clients)
        return replace(state, extras=aggregation.start_server(state))

    @property
    def parameters(self) -> Tensors:
        """The entries of the model that are trained."""
        return {name: value for name, value in self.model.items() if name not in self.buffers}

    def after(self, model: Tensors, **extras: Any) -> ServerState:
        """Return the state after a round, with a new model and new extras in place of those of the same names."""
        return replace(self, round=self.round + 1, model=model, extras=self.extras | extras, judged={}, counted={})


class Aggregation(Choice, ClientRule, ABC):
    """The settings of training that all aggregations share; the defaults are the paper's."""

    takes: ClassVar[Literal["each", "mean"]] = "each"
    """"each": ``combine`` sees every client's update by itself. "mean": it only ever adds them up, weighted by their
    examples, so that an engine may hand it means of several clients, and privacy one mean of all.
    """

    judges: ClassVar[bool] = False
    """does ``combine`` say in ``ServerState.counted`` whose update it took only in part? Then what clients return for
    their method is held until it has
    """

    name: str = ""
    rounds: int = Field(200, ge=1, le=10**7, description="communication rounds T")
    local_epochs: int = Field(1, ge=1, le=10**6, description="passes over its data that a client makes in a round")
    batch_size: int = Field(100, ge=1, le=10**9, description="local batch size")
    lr: float = Field(0.01, gt=0, le=1e6, description="learning rate of the first round")
    lr_decay: float = Field(0.995, gt=0, le=1, description="factor on the learning rate from round to round")
    lr_schedule: Literal["decay", "linear"] = Field(
        "decay",
        description="what else the learning rate does: nothing beside lr_decay, or linear: it also falls in a straight "
        "line, to nothing after the last round",
    )
    lr_patience: int = Field(
        0,
        ge=0,
        le=10**7,
        description="measurements of validation data without gain after which the learning rate is divided by "
        "lr_factor, and again after as many; 0: never",
    )
    lr_factor: float = Field(3.0, ge=1, le=1e6, description="what lr_patience divides the learning rate by")
    momentum: float = Field(0.5, ge=0, lt=1, description="momentum of SGD (the server's, where clients take one step)")
    weight_decay: float = Field(0.0, ge=0, le=1e6, description="L2 penalty of SGD")
    participation: float = Field(1.0, gt=0, le=1, description="share of the clients that is drawn for a round")
    norm_bound: float = Field(
        10.0,
        ge=0,
        le=1e9,
        description="an update of somebody else's machine that is longer than this many times the round's median, by "
        "its share of examples, is cut to that; 0: never",
    )

    def __init_subclass__(cls, **options: Any) -> None:
        """A ``combine`` that is written anew takes each update, unless it says otherwise itself."""
        super().__init_subclass__(**options)
        if "combine" in vars(cls) and "takes" not in vars(cls):
            cls.takes = "each"

    def lr_at(self, round_: int) -> float:
        """Return the learning rate of a round, counted from 0."""
        left = 1 - round_ / self.rounds if self.lr_schedule == "linear" else 1
        return self.lr * self.lr_decay**round_ * left

    def select(self, seed: int, round_: int, clients: int) -> list[int]:
        """Return the clients of a round in increasing order; the draw depends on (seed, round) alone."""
        if self.participation == 1:
            return list(range(clients))
        count = max(1, round(self.participation * clients))
        drawn = numpy_generator(seed, "selection", round_).choice(clients, count, replace=False)
        return sorted(int(k) for k in drawn)

    def start_server(self, state: ServerState) -> Tensors:
        """Return the extras that the server keeps before the first round."""
        return {}

    def broadcast(self, state: ServerState) -> Tensors:
        """Return what the server sends to every client besides the model."""
        return {}

    def work(self, seed: int, round_: int, selected: list[int]) -> list[Work]:
        """Return what is asked of each selected client: the same number of local epochs, unless it says otherwise."""
        return [
            Work(
                client=k,
                round=round_,
                lr=self.lr_at(round_),
                epochs=self.local_epochs,
                batch_size=self.batch_size,
                momentum=self.momentum,
                weight_decay=self.weight_decay,
            )
            for k in selected
        ]

    @abstractmethod
    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Return the server's state after a round."""

    def report(self, state: ServerState) -> dict[str, Any]:
        """Return what the record of a round says of the server's extras, as plain values."""
        return {}


class Mean:
    """Adds up updates, weighted by their examples, without ever holding all of them.

    BatchNorm's running means and variances are buffers of floats and are averaged like parameters; counters of
    batches are whole numbers and take the largest value.
    """

    def __init__(self) -> None:
        self.examples = 0
        self.clients = 0.0
        """|S|, of how many clients it is the mean"""
        self._sums: dict[str, Tensors] = {"model": {}, "extras": {}}
        self._dtypes: dict[tuple[str, str], torch.dtype] = {}

    def add(self, update: Update) -> None:
        """Take in one more update."""
        self.examples += update.examples
        self.clients += update.clients if update.divisor is None else update.divisor
        self._add("model", update.model, update.examples)
        self._add("extras", update.extras, update.examples)

    def read(self, updates: Iterable[Update]) -> Iterator[Update]:
        """Take in updates while they pass by."""
        for update in updates:
            self.add(update)
            yield update

    def _add(self, group: str, tensors: Tensors, weight: int) -> None:
        sums = self._sums[group]
        for name, value in tensors.items():
            self._dtypes[group, name] = value.dtype
            if not value.is_floating_point():
                sums[name] = torch.maximum(sums[name], value) if name in sums else value
            elif name in sums:
                sums[name].add_(value.double(), alpha=weight)
            else:
                sums[name] = value.double() * weight

    def of(self, group: Literal["model", "extras"]) -> Tensors:
        """Return Σ_k (n_k/n) w_k."""
        if self.examples == 0:
            raise TrainingError("No client returned an update in this round.")
        return {
            name: (value / self.examples).to(dtype) if (dtype := self._dtypes[group, name]).is_floating_point else value
            for name, value in self._sums[group].items()
        }


def mean_of(updates: Iterable[Update]) -> Mean:
    """Return the mean of all updates."""
    mean = Mean()
    for update in updates:
        mean.add(update)
    return mean


def weighted_mean(updates: Iterable[Update]) -> Tensors:
    """Return the mean model Σ_k (n_k/n) w_k."""
    return mean_of(updates).of("model")
