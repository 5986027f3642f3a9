"""Algorithm 1 of the paper: the server's loop over rounds, whatever engine runs the clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from fedpu.aggregation import Aggregation, ServerState
from fedpu.engine import Clients, Screen
from fedpu.method import Method, OutputsOf
from fedpu.round import Broadcast, Tensors, Update, Work

Select = Callable[[int], list[int]]
"""draws the clients of a round"""


@dataclass(frozen=True, eq=False)
class Traffic:
    """The bytes of all tensors that went to clients and that came back, as they are: nothing is packed or cut off."""

    down: int
    up: int


@dataclass(frozen=True, eq=False)
class Round:
    """A finished round: its number counted from 1, the server's new state, and what the clients reported."""

    number: int
    state: ServerState
    lr: float
    clients: int
    terms: dict[str, float]
    seconds: float
    left_out: dict[str, str] = field(default_factory=dict)
    """who was asked and took no part in the result, and why"""
    cut: dict[str, str] = field(default_factory=dict)
    """whose update counts less than it would have, and why"""
    traffic: Traffic = Traffic(0, 0)


def rounds(
    clients: Clients,
    aggregation: Aggregation,
    state: ServerState,
    seed: int,
    select: Select | None = None,
    serving: Serving | None = None,
    lr_scale: Callable[[], float] = lambda: 1.0,
) -> Iterator[Round]:
    """Run the rounds that are left, from a state that may be a checkpoint's.

    Each round: 1. draw clients; 2. send them the model and what goes with it, and ask for ClientUpdate(k, w_t); 3. make
    w_{t+1} of their updates. ``serving`` is what the method does on the server, and ``lr_scale`` what a schedule that
    follows the measurements multiplies the learning rate by.
    """
    for number in range(state.round, aggregation.rounds):
        started = time.perf_counter()
        drawn = aggregation.select(seed, number, state.clients) if select is None else select(number)
        sent = Broadcast(state.model, aggregation.broadcast(state), state.shared, number)
        scale = lr_scale()
        work = aggregation.work(seed, number, drawn)
        if scale != 1:
            work = [replace(one, lr=scale * one.lr) for one in work]
        seen = None if serving is None else _Seen(serving, state.memory, sent, work, aggregation.judges)
        work = work if seen is None else seen.work
        report, screen = _Report(aggregation.judges), Screen(sent, aggregation.norm_bound, clients.name)
        answers = clients.update(sent, work, each=aggregation.takes == "each" or seen is not None)
        alone = clients.trusted and aggregation.takes == "mean"
        updates = report.read(answers if alone else screen.read(answers))
        updates = updates if seen is None else seen.read(updates)
        state = aggregation.combine(state, updates)
        for _ in updates:  # whatever the aggregation made of them: every client has finished the round
            pass
        state = replace(state, shared=report.shared(sent.shared, state.counted))
        judged = {clients.name(k): told for k, told in state.judged.items()}
        if seen is not None:
            state = replace(state, memory=seen.remembered(state.counted))
        yield Round(
            number=number + 1,
            state=state,
            lr=scale * aggregation.lr_at(number),
            clients=report.clients,
            terms=report.means(),
            seconds=time.perf_counter() - started,
            left_out=clients.left_out | screen.left_out,
            cut=screen.cut | judged,
            traffic=Traffic(_bytes_of(sent) * len(work) + sum(_size(one.extras) for one in work), report.bytes),
        )


@dataclass(frozen=True, eq=False)
class Serving:
    """What a method does on the server."""

    method: Method
    on_noise: OutputsOf


LEFT_OUT = 0.5
"""an update that counts for less than this part of its share is not remembered"""


class _Seen:
    """Asks clients as a method wants it, and lets it remember what comes back; where an aggregation judges updates,
    when it has.
    """

    def __init__(self, serving: Serving, memory: Tensors, sent: Broadcast, work: Sequence[Work], judged: bool) -> None:
        self.work = serving.method.ask(memory, sent, work)
        self._memory = memory
        self._serving = serving
        self._sent = sent
        self._asked = {one.client: one for one in self.work}
        self._judged = judged
        self._held: list[Update] = []

    def read(self, updates: Iterable[Update]) -> Iterator[Update]:
        for update in updates:
            if self._judged:
                self._held.append(update)
            else:
                self._remember(update)
            yield update

    def remembered(self, counted: Mapping[int, float]) -> Tensors:
        """Return what the method remembers of all updates that were taken."""
        for update in self._held:
            if counted.get(update.client, 1.0) >= LEFT_OUT:
                self._remember(update)
        return self._memory

    def _remember(self, update: Update) -> None:
        method, on_noise = self._serving.method, self._serving.on_noise
        self._memory = method.remember(self._memory, self._sent, self._asked[update.client], update, on_noise)


def _size(tensors: Tensors) -> int:
    return sum(value.numel() * value.element_size() for value in tensors.values())


def _bytes_of(both: Broadcast | Update) -> int:
    return _size(both.model) + _size(both.extras) + _size(both.shared)


class _Report:
    """Keeps means over clients, by their numbers of examples, while updates pass by: of every term of the loss, and
    of what the method shares between clients. The latter waits for the verdict of an aggregation that judges updates.
    """

    def __init__(self, judged: bool) -> None:
        self.clients = 0
        self._examples = 0
        self._sums: dict[str, float] = {}
        self.bytes = 0
        self._judged = judged
        self._held: list[tuple[int, int, Tensors]] = []
        self._sharing = 0.0
        self._shared: Tensors = {}

    def read(self, updates: Iterable[Update]) -> Iterator[Update]:
        for update in updates:
            self.clients += update.clients
            self.bytes += _bytes_of(update) * update.clients
            if update.terms:
                self._examples += update.examples
            for name, value in update.terms.items():
                self._sums[name] = self._sums.get(name, 0.0) + value * update.examples
            if update.shared and self._judged:
                self._held.append((update.client, update.examples, update.shared))
            elif update.shared:
                self._share(float(update.examples), update.shared)
            yield update

    def _share(self, weight: float, tensors: Tensors) -> None:
        self._sharing += weight
        for name, tensor in tensors.items():
            self._shared[name] = self._shared.get(name, torch.zeros(())) + tensor.double() * weight

    def means(self) -> dict[str, float]:
        return {name: value / self._examples for name, value in self._sums.items()}

    def shared(self, before: Tensors, counted: Mapping[int, float]) -> Tensors:
        """Return the new mean of every shared tensor, in which a client counts as its update did; one that nobody has
        returned stays as it was.
        """
        for client, examples, tensors in self._held:
            self._share(examples * counted.get(client, 1.0), tensors)
        if not self._sharing:
            return before
        return before | {
            name: (value / self._sharing).to(before[name].dtype if name in before else torch.float32)
            for name, value in self._shared.items()
        }
