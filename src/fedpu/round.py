"""The values of a round: all that passes between server and clients, and what stays with a client.

The server sends a :class:`Broadcast` to every client of a round and asks each for a piece of :class:`Work`; an
:class:`Update` comes back. A client's state, tensors by name, stays with it. What an aggregation does on the client's
side (:class:`ClientRule`) is defined here too, so that engines know it and aggregations, to their right, implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

Tensors = dict[str, Tensor]
"""Tensors by name: a model's parameters and buffers, the state of a client, whatever travels beside a model."""


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What the server sends to every client of a round."""

    model: Tensors
    extras: Tensors = field(default_factory=dict)
    """what the aggregation sends besides the model, such as SCAFFOLD's control variate"""
    shared: Tensors = field(default_factory=dict)
    """what the method shares between clients besides the model: the mean of what they returned last"""
    round: int = 0
    """counted from 0"""


@dataclass(frozen=True)
class Work:
    """What the server asks of one client in one round."""

    client: int
    round: int
    lr: float
    epochs: int = 1
    batch_size: int | None = None
    """None: all data at once"""
    momentum: float = 0.0
    weight_decay: float = 0.0
    share: float = 1.0
    """the part of its steps that a straggler manages"""
    extras: Tensors = field(default_factory=dict, compare=False)
    """what is sent to this client alone"""


@dataclass(frozen=True, eq=False)
class Update:
    """What a client returns: its parameters, its number of examples n_k, and the mean of each term of its loss.

    Where an aggregation takes the mean, an engine may return several clients as one: their sum of examples, and their
    means weighted by it.
    """

    client: int
    examples: int
    model: Tensors
    terms: dict[str, float]
    extras: Tensors = field(default_factory=dict)
    """what the aggregation's rule returns besides the model"""
    shared: Tensors = field(default_factory=dict)
    """what the method returns besides the model"""
    clients: int = 1
    divisor: float | None = None
    """the number of clients that a sum was divided by, where it is not how many came but how many were expected: under
    central differential privacy, where how many came is private too
    """


@dataclass(frozen=True, eq=False)
class Correction:
    """What an aggregation adds to every gradient of a client: ``proximal · (w − w_t) + offset``."""

    proximal: float = 0.0
    offset: Tensors = field(default_factory=dict)
    """by the names of parameters; none: zero"""


class Descent(NamedTuple):
    """How a client came from its first parameters to its last, by SGD with momentum."""

    steps: int
    lr: float
    momentum: float

    @property
    def length(self) -> float:
        """A with w_t − w_k = A · (a mean of the gradients along the way), the weights being those of the momentum.

        Step s of S moves the parameters by lr · g_s, and by momentum^j of that again j steps later.
        """
        m = self.momentum
        return self.lr * sum((1 - m ** (self.steps - s)) / (1 - m) for s in range(self.steps))


class Ending(NamedTuple):
    """What a client sends besides its model at the end of an update, and what it keeps."""

    extras: Tensors
    state: Tensors


class ClientRule:
    """The part of an aggregation that runs on clients. Everything has a default, which does nothing.

    ``parameters`` are what is trained, without buffers. A rule sees no data: it asks ``loss`` how well a model does.
    """

    def start_client(self, parameters: Tensors) -> Tensors:
        """Return the state of a client that takes part for the first time."""
        return {}

    def choose_model(self, sent: Broadcast, work: Work, loss: Callable[[Tensors], float]) -> Tensors:
        """Return the model that a client starts from; ``loss`` is the method's on all of its data."""
        return sent.model

    def correction(self, sent: Broadcast, work: Work, state: Tensors) -> Correction:
        """Return what is added to every gradient of this update."""
        return Correction()

    def end_client(
        self, sent: Broadcast, work: Work, state: Tensors, start: Tensors, trained: Tensors, descent: Descent
    ) -> Ending:
        """Return what a client sends besides its model, and its new state."""
        return Ending({}, state)

    def returns(self, parameters: Tensors) -> Tensors:
        """Return tensors with the names, shapes and types of the extras that a client returns."""
        return {}


def overrides(thing: object, base: type, name: str) -> bool:
    """Has an object's class a method of its own where ``base`` has a default?"""
    return getattr(type(thing), name) is not getattr(base, name)


def prefixed(groups: Mapping[str, Tensors]) -> Tensors:
    """Return several groups of tensors as one, each name behind its group's."""
    return {f"{group}.{name}": value for group, tensors in groups.items() for name, value in tensors.items()}


def under(group: str, tensors: Tensors) -> Tensors:
    """Return the tensors of one group, without its name before theirs."""
    prefix = f"{group}."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
