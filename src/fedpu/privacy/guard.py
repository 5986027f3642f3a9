"""Privacy in a run of one process: clients and server do here what they would do on machines of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from fedpu.aggregation import Aggregation
from fedpu.engine import Clients, ClientStates, expected_from
from fedpu.errors import ConfigError
from fedpu.method import Method
from fedpu.privacy import accountant
from fedpu.privacy.mechanism import Layout, Vector, uniform
from fedpu.privacy.protection import (
    lent_rules,
    lent_weight,
    mean_update,
    protect,
    protect_negatives,
    secure_rules,
    summed_negatives,
)
from fedpu.privacy.secagg import Rules, need_flower, secure_sum
from fedpu.privacy.secagg.local import Contribution
from fedpu.privacy.secagg.rules import FEWEST
from fedpu.privacy.settings import Privacy
from fedpu.randomness import numpy_generator
from fedpu.round import Broadcast, Update, Work


@dataclass(frozen=True)
class Spent:
    """The (ε, δ) of all models released so far. ``epsilon`` is None where there is no noise, and so no guarantee."""

    epsilon: float | None
    delta: float


@runtime_checkable
class Journal(Protocol):
    """Keeps who was asked for an update, across restarts."""

    def read(self) -> list[tuple[int, list[int]]]:
        """Return rounds and who was asked in them."""

    def add(self, round_: int, clients: list[int]) -> None:
        """Note whom a round is about to ask."""


class Guard:
    """Draws clients, makes one protected mean of their updates, and keeps account.

    ``lends`` says whether the method needs the sum of negative classes, which is released once.
    """

    def __init__(
        self, settings: Privacy, layout: Layout, aggregation: Aggregation, clients: int, seed: int, lends: bool
    ) -> None:
        self.settings = settings
        self.layout = layout
        self.aggregation = aggregation
        self.clients = clients
        self.seed = seed
        self.lends = lends
        self._releases: list[int] = [0] * clients
        self._counted = 0
        self._noted: set[int] = set()
        self._journal: Journal | None = None
        if settings.differential != "off":
            accountant.need_dp_accounting()
        if settings.secure_aggregation:
            need_flower()

    @property
    def poisson(self) -> bool:
        """Is every client drawn by a coin of its own?"""
        central = self.settings.differential == "central"
        return central and self.settings.sampling == "poisson" and self.aggregation.participation < 1

    @property
    def expected(self) -> float:
        """The number of clients to be expected in a round, by which a noisy sum is divided."""
        if self.poisson:
            return self.aggregation.participation * self.clients
        return float(len(self.aggregation.select(self.seed, 0, self.clients)))

    def select(self, round_: int) -> list[int]:
        """Return the clients of a round."""
        system = self.settings.differential == "central" and self.settings.noise_source == "system"
        if self.poisson:
            drawn = (
                uniform(self.clients)
                if system
                else numpy_generator(self.seed, "poisson selection", round_).random(self.clients)
            )
            return np.nonzero(drawn < self.aggregation.participation)[0].tolist()
        if system:  # a draw that makes noise go further must be as secret as the noise
            return sorted(np.argsort(uniform(self.clients))[: round(self.expected)].tolist())
        return self.aggregation.select(self.seed, round_, self.clients)

    def asked(self, work: Sequence[Work]) -> Sequence[Work]:
        """Return the work of a draw that clients are asked for: none, where noise alone is released.

        A coin for every client may draw fewer than two of them. A secure sum of one client would be its update in the
        open, so such a round asks nobody; leaving it out would tell how many were drawn.
        """
        too_few = self.poisson and self.settings.secure_aggregation and len(work) < FEWEST
        return [] if too_few else work

    def keep_journal(self, journal: Journal) -> None:
        """Note on the disk who is asked, where a round that is repeated releases something new."""
        if not self._repeats_differ:
            return
        self._journal = journal
        for round_, clients in journal.read():
            self._noted.add(round_)
            self._count(clients)

    def note(self, round_: int, work: Sequence[Work]) -> None:
        """Note who is about to be asked: from then on an update may have left, whatever becomes of the round."""
        if not self._repeats_differ:
            return
        clients = [one.client for one in work]
        if self._journal is not None:
            self._journal.add(round_, clients)
        self._noted.add(round_)
        self._count(clients)

    def _count(self, clients: Iterable[int]) -> None:
        for client in clients:
            self._releases[client] += 1

    @property
    def _repeats_differ(self) -> bool:
        """Does a client add other noise when it is asked for a round again? Noise of the seed is the same."""
        return self.settings.differential == "local" and self.settings.noise_source == "system"

    def combined(self, sent: Broadcast, work: Sequence[Work], updates: Iterable[Update]) -> Update:
        """Return the protected mean of a round as one update. The terms of the loss stay with the clients."""
        if not self.asked(work) and self.poisson:
            return self.noise(sent)
        settings, seed, asked = self.settings, self.seed, [one.client for one in work]

        def contributions() -> Iterator[Contribution]:
            for update in updates:
                assert update.clients == 1
                vector = self.layout.vector(sent, update)
                yield (update.client, *protect(settings, vector, update.examples, seed, sent.round, update.client))

        rules = secure_rules(settings, len(asked), self.layout.length) if settings.secure_aggregation else None
        return self.mean(sent, *_sum(contributions(), asked, self.layout.length, rules))

    def noise(self, sent: Broadcast) -> Update:
        """Return the update of a round that nobody is asked in."""
        return self.mean(sent, 0, np.zeros(self.layout.length), 0)

    def mean(self, sent: Broadcast, weight: int, total: Vector, clients: int) -> Update:
        """Return the mean update from the sums over clients, with the server's noise where it adds any."""
        mean = mean_update(self.settings, weight, total, self.expected, self.seed, sent.round)
        update = self.layout.update(sent, mean, clients)
        return replace(update, divisor=self.expected) if self.settings.differential == "central" else update

    def co_negatives(self, positive: Bool[Tensor, "K C"], sizes: Int64[Tensor, " K"] | None) -> Float[Tensor, "C C"]:
        """Return the sum of negative classes that clients lend by, formed as the settings ask for.

        ``sizes`` are the clients' numbers of examples where the method counts them so, else None.
        """
        settings, (clients, classes) = self.settings, positive.shape
        by_size = sizes is not None
        counts = [1] * clients if sizes is None else [lent_weight(settings, n, by_size) for n in sizes.tolist()]
        negative = (~positive).double().numpy()
        sent = ((k, counts[k], protect_negatives(settings, row, self.seed, k)) for k, row in enumerate(negative))
        rules = lent_rules(settings, clients, classes, by_size) if settings.secure_aggregation else None
        weight, total, _ = _sum(sent, list(range(clients)), classes**2, rules)
        return torch.from_numpy(summed_negatives(settings, weight, total, clients, self.seed)).float()

    def spent(self, rounds: int) -> Spent | None:
        """Return what was spent after so many rounds; without differential privacy nothing can be said."""
        settings = self.settings
        if settings.differential == "off":
            return None
        once = settings.lent_noise_multiplier if self.lends else None
        if settings.differential == "local":
            epsilon = self._local_epsilon(rounds, once)
        elif self.poisson:
            epsilon = self._poisson_epsilon(rounds, once)
        elif self.expected < self.clients:
            drawn = round(self.expected)
            epsilon = accountant.fixed_epsilon(
                settings.noise_multiplier, drawn, self.clients, rounds, once, settings.delta
            )
        else:
            epsilon = accountant.gaussian_epsilon([(settings.noise_multiplier, rounds), (once, 1)], settings.delta)
        return Spent(epsilon if math.isfinite(epsilon) else None, settings.delta)

    @property
    def meaning(self) -> str:
        """What the reported ε is about, in words."""
        if self.settings.differential == "local":
            return "local: each client's own releases, by any two data sets of it; of the client that took part most"
        if self.poisson or self.expected == self.clients:
            return "central: the global models, by adding or removing all data of a client"
        return "central: the global models, by replacing all data of a client"

    def _poisson_epsilon(self, rounds: int, once: float | None) -> float:
        share, settings = self.aggregation.participation, self.settings
        if settings.secure_aggregation:
            return accountant.secure_poisson_epsilon(
                settings.noise_multiplier, share, self.clients, rounds, once, settings.delta
            )
        return accountant.poisson_epsilon(settings.noise_multiplier, share, rounds, once, settings.delta)

    def _local_epsilon(self, rounds: int, once: float | None) -> float:
        """Return ε of the client that was asked most often: any two updates are up to two clips apart.

        Rounds that were interrupted count as often as they were asked for.
        """
        for round_ in range(self._counted, rounds):
            if round_ not in self._noted:
                self._count(self.select(round_))
        self._counted = max(self._counted, rounds)
        halves = [(self.settings.noise_multiplier / 2, max(self._releases)), (None if once is None else once / 2, 1)]
        return accountant.gaussian_epsilon(halves, self.settings.delta)


def _sum(
    contributions: Iterable[Contribution], asked: list[int], length: int, rules: Rules | None
) -> tuple[int, Vector, int]:
    """Return Σ weight, Σ weight · values and the number of clients that came, as a running or as a secure sum."""
    if rules is not None:
        secure = secure_sum(rules, asked, contributions)
        return secure.weight, secure.sums, len(secure.clients)
    weight, total, came = 0, np.zeros(length), 0
    for _, part, values in contributions:
        weight, came = weight + part, came + 1
        total += part * values
    return weight, total, came


def guard_for(
    settings: Privacy,
    network: nn.Module,
    aggregation: Aggregation,
    method: Method,
    clients: int,
    classes: int,
    seed: int,
) -> Guard | None:
    """Return the guard of a run, or None where nothing is to be protected."""
    if not settings.on:
        return None
    if aggregation.takes == "each":
        raise ConfigError(
            "With [privacy] on the server gets one protected mean of all updates, and the aggregation "
            f"'{aggregation.model_dump()['name']}' needs each of them by itself. Choose an aggregation that takes a "
            "mean, or turn [privacy] off."
        )
    if method.serves:
        raise ConfigError(
            "With [privacy] on the server gets one protected mean of all updates, and the method "
            f"'{method.model_dump()['name']}' looks at each of them on the server. Choose another method, or turn "
            "[privacy] off."
        )
    layout = layout_for(network, aggregation, method, classes)
    return Guard(settings, layout, aggregation, clients, seed, method.lends)


def layout_for(network: nn.Module, aggregation: Aggregation, method: Method, classes: int) -> Layout:
    """Return what is in the vector that a client's update becomes."""
    return Layout(network, *expected_from(network, aggregation, method, classes))


class ProtectedClients(Clients):
    """Clients whose updates reach the server as one protected mean."""

    def __init__(self, clients: Clients, guard: Guard) -> None:
        self._clients = clients
        self._guard = guard

    def update(self, sent: Broadcast, work: Sequence[Work], each: bool = False) -> Iterator[Update]:
        """Yield one update, the protected mean of all."""
        asked = self._guard.asked(work)
        self._guard.note(sent.round, asked)
        yield self._guard.combined(sent, asked, self._clients.update(sent, asked, each=True))

    def states(self) -> ClientStates:
        """Return what stays with the clients."""
        return self._clients.states()

    def restore(self, states: ClientStates) -> None:
        """Put back what stayed with the clients."""
        self._clients.restore(states)

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result, and why."""
        return self._clients.left_out
