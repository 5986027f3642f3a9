"""Algorithm 1 of the paper: the server's loop over rounds, whatever engine runs the clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch

from fedpu.aggregation import Aggregation, ServerState
from fedpu.engine import Clients, Screen
from fedpu.round import Broadcast, Tensors, Update

Select = Callable[[int], list[int]]
"""draws the clients of a round"""


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


def rounds(
    clients: Clients, aggregation: Aggregation, state: ServerState, seed: int, select: Select | None = None
) -> Iterator[Round]:
    """Run the rounds that are left, from a state that may be a checkpoint's.

    Each round: 1. draw clients; 2. send them the model and what goes with it, and ask for ClientUpdate(k, w_t); 3. make
    w_{t+1} of their updates.
    """
    for number in range(state.round, aggregation.rounds):
        started = time.perf_counter()
        drawn = aggregation.select(seed, number, state.clients) if select is None else select(number)
        sent = Broadcast(state.model, aggregation.broadcast(state), state.shared, number)
        work = aggregation.work(seed, number, drawn)
        report, screen = _Report(), Screen(sent, aggregation.norm_bound, clients.name)
        answers = clients.update(sent, work, each=aggregation.takes == "each")
        alone = clients.trusted and aggregation.takes == "mean"
        updates = report.read(answers if alone else screen.read(answers))
        state = aggregation.combine(state, updates)
        for _ in updates:  # whatever the aggregation made of them: every client has finished the round
            pass
        state = replace(state, shared=report.shared(sent.shared))
        judged = {clients.name(k): told for k, told in state.judged.items()}
        yield Round(
            number=number + 1,
            state=state,
            lr=aggregation.lr_at(number),
            clients=report.clients,
            terms=report.means(),
            seconds=time.perf_counter() - started,
            left_out=clients.left_out | screen.left_out,
            cut=screen.cut | judged,
        )


class _Report:
    """Keeps means over clients, by their numbers of examples, while updates pass by: of every term of the loss, and
    of what the method shares between clients.
    """

    def __init__(self) -> None:
        self.clients = 0
        self._examples = 0
        self._sums: dict[str, float] = {}
        self._sharing = 0
        self._shared: Tensors = {}

    def read(self, updates: Iterable[Update]) -> Iterator[Update]:
        for update in updates:
            self.clients += update.clients
            if update.terms:
                self._examples += update.examples
            for name, value in update.terms.items():
                self._sums[name] = self._sums.get(name, 0.0) + value * update.examples
            if update.shared:
                self._sharing += update.examples
            for name, tensor in update.shared.items():
                self._shared[name] = self._shared.get(name, torch.zeros(())) + tensor.double() * update.examples
            yield update

    def means(self) -> dict[str, float]:
        return {name: value / self._examples for name, value in self._sums.items()}

    def shared(self, before: Tensors) -> Tensors:
        """Return the new mean of every shared tensor; one that nobody has returned stays as it was."""
        return before | {
            name: (value / self._sharing).to(before[name].dtype if name in before else torch.float32)
            for name, value in self._shared.items()
        }
