"""Algorithm 1 of the paper: the server's loop over rounds, whatever engine runs the clients."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fedpu.aggregation import Aggregation, ServerState
from fedpu.engine import Clients, Update
from fedpu.privacy import Guard


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


def rounds(
    clients: Clients,
    aggregation: Aggregation,
    state: ServerState,
    population: int,
    seed: int,
    guard: Guard | None = None,
) -> Iterator[Round]:
    """Run the rounds that are left, from a state that may be a checkpoint's.

    ``population`` is K, the number of clients. Each round: 1. draw clients; 2. ClientUpdate(k, w_t) on each of them;
    3. w_{t+1} from their updates. With a ``guard``, it draws the clients and makes one private mean of their updates.
    """
    for number in range(state.round, aggregation.rounds):
        started = time.perf_counter()
        report = _Report()
        if guard is None:
            work = aggregation.work(seed, number, aggregation.select(seed, number, population))
            updates: Iterable[Update] = clients.update(state.model, work)
        else:
            work = guard.work(number)
            updates = [guard.combined(state.model, work, clients.update(state.model, work), number)]
        state = aggregation.combine(state, report.read(updates))
        yield Round(
            number=number + 1,
            state=state,
            lr=aggregation.lr_at(number),
            clients=report.clients,
            terms=report.means(),
            seconds=time.perf_counter() - started,
            left_out=clients.left_out,
        )


class _Report:
    """Keeps the mean of every risk term over clients, by their numbers of examples, while updates pass by."""

    def __init__(self) -> None:
        self.clients = 0
        self._examples = 0
        self._sums: dict[str, float] = {}

    def read(self, updates: Iterable[Update]) -> Iterator[Update]:
        for update in updates:
            self.clients += update.clients
            if update.terms:
                self._examples += update.examples
            for name, value in update.terms.items():
                self._sums[name] = self._sums.get(name, 0.0) + value * update.examples
            yield update

    def means(self) -> dict[str, float]:
        return {name: value / self._examples for name, value in self._sums.items()}
