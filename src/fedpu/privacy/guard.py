"""Privacy in a run of one process: clients and server do here what they would do on machines of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from fedpu.aggregation import Aggregation
from fedpu.engine import ModelState, Update, Work
from fedpu.privacy import accountant
from fedpu.privacy.mechanism import Layout, Vector, uniform
from fedpu.privacy.protection import (
    lent_rules,
    mean_update,
    protect,
    protect_negatives,
    secure_rules,
    summed_negatives,
)
from fedpu.privacy.secagg import Rules, need_flower, secure_sum
from fedpu.privacy.secagg.local import Contribution
from fedpu.privacy.settings import Privacy
from fedpu.randomness import numpy_generator


@dataclass(frozen=True)
class Spent:
    """The (ε, δ) of all models released so far. ``epsilon`` is None where there is no noise, and so no guarantee."""

    epsilon: float | None
    delta: float


class Guard:
    """Draws clients, makes one protected mean of their updates, and keeps account.

    ``lends`` says whether the method needs the sum of negative classes, which is released once.
    """

    def __init__(
        self, settings: Privacy, network: nn.Module, aggregation: Aggregation, clients: int, seed: int, lends: bool
    ) -> None:
        self.settings = settings
        self.layout = Layout(network)
        self.aggregation = aggregation
        self.clients = clients
        self.seed = seed
        self.lends = lends
        self._releases: list[int] = [0] * clients
        self._counted = 0
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

    def work(self, round_: int) -> list[Work]:
        """Return what is asked of a round's clients; everybody's update comes back by itself."""
        asked = self.aggregation.work(self.seed, round_, self.select(round_))
        return [replace(piece, alone=True) for piece in asked]

    def combined(self, model: ModelState, work: Sequence[Work], updates: Iterable[Update], round_: int) -> Update:
        """Return the protected mean of a round as one update. The terms of the risk stay with the clients."""
        settings, seed = self.settings, self.seed
        asked = [piece.client for piece in work]

        def sent() -> Iterator[Contribution]:
            for update in updates:
                assert update.clients == 1
                change = self.layout.difference(model, update.model)
                yield (update.client, *protect(settings, change, update.examples, seed, round_, update.client))

        rules = secure_rules(settings, len(asked), self.layout.length) if settings.secure_aggregation else None
        weight, total, came = _sum(sent(), asked, self.layout.length, rules)
        mean = mean_update(settings, weight, total, self.expected, seed, round_)
        return Update(asked[0] if asked else 0, 1, self.layout.moved(model, mean), {}, clients=came)

    def co_negatives(self, positive: Bool[Tensor, "K C"]) -> Float[Tensor, "C C"] | None:
        """Return the sum of negative classes that clients lend by, formed as the settings ask for; None where the
        method does not lend.
        """
        if not self.lends:
            return None
        settings, (clients, classes) = self.settings, positive.shape
        negative = (~positive).double().numpy()
        sent = ((k, 1, protect_negatives(settings, row, self.seed, k)) for k, row in enumerate(negative))
        rules = lent_rules(settings, clients, classes) if settings.secure_aggregation else None
        _, total, _ = _sum(sent, list(range(clients)), classes**2, rules)
        return torch.from_numpy(summed_negatives(settings, total, clients, self.seed)).float()

    def spent(self, rounds: int) -> Spent | None:
        """Return what was spent after so many rounds; without differential privacy nothing can be said."""
        settings = self.settings
        if settings.differential == "off":
            return None
        once = settings.lent_noise_multiplier if self.lends else None
        if settings.differential == "local":
            epsilon = self._local_epsilon(rounds, once)
        elif self.poisson:
            share = self.aggregation.participation
            epsilon = accountant.poisson_epsilon(settings.noise_multiplier, share, rounds, once, settings.delta)
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

    def _local_epsilon(self, rounds: int, once: float | None) -> float:
        """Return ε of the client that has taken part most often: any two updates are up to two clips apart."""
        for round_ in range(self._counted, rounds):
            for client in self.select(round_):
                self._releases[client] += 1
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
    settings: Privacy, network: nn.Module, aggregation: Aggregation, clients: int, seed: int, lends: bool
) -> Guard | None:
    """Return the guard of a run, or None where nothing is to be protected."""
    return Guard(settings, network, aggregation, clients, seed, lends) if settings.on else None
