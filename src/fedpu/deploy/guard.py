"""Privacy in a deployment: every client protects its own part, and the server sees what the settings let it see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from flwr.app import RecordDict
from jaxtyping import Float
from torch import Tensor

from fedpu.deploy.protocol import NEGATIVES, NEGATIVES_GROUP, SECURE_NEGATIVES, SECURE_TRAIN, TRAIN_PRIVATE
from fedpu.deploy.sums import Vouch, anybody, plain_sum, secure_sum
from fedpu.engine import Clients
from fedpu.engine.flower.clients import Complete, group, work_messages
from fedpu.errors import LabellingError, TrainingError
from fedpu.flower.exchange import Exchange
from fedpu.privacy import (
    Guard,
    Privacy,
    largest_number,
    lent_rules,
    lent_weight,
    secure_rules,
    summed_negatives,
)
from fedpu.privacy.mechanism import Vector
from fedpu.record import Members
from fedpu.round import Broadcast, Update, Work

REACH = 1e-6
"""how far rounding may take a clipped update beyond its bound"""


class ProtectedNodes(Clients):
    """Makes the protected mean of a round from the parts that clients have protected on their own machines."""

    def __init__(self, guard: Guard, exchange: Exchange, complete: Complete, vouch: Vouch = anybody) -> None:
        self._guard = guard
        self._vouch = vouch
        self._exchange = exchange
        self._complete = complete

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result, and why."""
        return dict(self._exchange.left_out)

    def update(self, sent: Broadcast, work: Sequence[Work], each: bool = False) -> Iterator[Update]:
        """Yield one update, the protected mean of all; plain ones are never asked for."""
        exchange, guard = self._exchange, self._guard
        settings, length = guard.settings, guard.layout.length
        exchange.left_out.clear()
        work = guard.asked(work)
        if not work and guard.poisson:  # nobody was drawn, or too few for a secure sum: a round all the same
            yield guard.noise(sent)
            return
        guard.note(sent.round, work)
        messages = work_messages(sent, work, self._complete)
        if settings.secure_aggregation:
            rules = secure_rules(settings, len(work), length)
            total = secure_sum(exchange, rules, SECURE_TRAIN, messages, group(work), self._vouch)
        else:
            total = plain_sum(exchange, TRAIN_PRIVATE, messages, length, group(work), self._fault)
        exchange.refuse_too_few(total.clients, sent.round)
        yield guard.mean(sent, total.weight, total.values, total.clients)

    def _fault(self, client: int, weight: int, change: Vector) -> str | None:
        """Say what is wrong with an update: under ``central`` the noise hides no more than a clip, once."""
        if self._guard.settings.differential != "off" and weight != 1:
            return f"it counts itself {weight} times"
        norm = float(np.linalg.norm(change))
        limits = [limit for limit in (self._exchange.rules.max_norm,) if limit is not None]
        if self._guard.settings.differential == "central":
            limits.append(self._guard.settings.clip * (1 + REACH))
        for limit in limits:
            if norm > limit:
                return f"its update has norm {norm:.3g}, more than {limit:g}"
        settings = self._guard.settings
        return _beyond(change, largest_number(settings, settings.clip, settings.noise_multiplier) * (1 + REACH))


class NegativeClasses(NamedTuple):
    """The sum of negative classes, and which of the clients that were asked are in it."""

    total: Float[Tensor, "C C"]
    clients: list[int]


def summed_negative_classes(
    settings: Privacy,
    exchange: Exchange,
    about: RecordDict,
    members: Members,
    seed: int,
    by_size: bool,
    vouch: Vouch = anybody,
) -> NegativeClasses:
    """Form the sum of negative classes, once, of all clients, each counted by its size or as one.

    A client whose part can't be used is not in it, and must be left out of the run.
    """
    asked, classes = len(members.names), len(members.card.classes)
    messages = dict.fromkeys(range(asked), about)
    exchange.left_out.clear()
    if settings.secure_aggregation:
        rules = lent_rules(settings, asked, classes, by_size)
        total = secure_sum(exchange, rules, SECURE_NEGATIVES, messages, NEGATIVES_GROUP, vouch)
    else:
        counts = [lent_weight(settings, n, by_size) for n in members.examples or [1] * asked]

        def check(client: int, weight: int, values: Vector) -> str | None:
            if weight != counts[client]:
                return f"it counts itself {weight} times in the sum over clients; it should be {counts[client]}"
            if settings.differential == "local":
                return _beyond(values, largest_number(settings, float(classes), settings.lent_noise_multiplier))
            if not _is_outer_product(values):
                return "it sent something else than its part of the sum over clients"
            return None

        total = plain_sum(exchange, NEGATIVES, messages, classes**2, NEGATIVES_GROUP, check)
    reasons = "".join(f" {name}: {reason}." for name, reason in exchange.left_out.items())
    if total.clients < exchange.rules.min_clients or not total.clients:
        raise TrainingError(
            f"The sum over clients that the lent term needs has {total.clients} usable parts, and engine.min_clients "
            f"is {exchange.rules.min_clients}.{reasons}"
        )
    values = np.round(total.values) if settings.differential == "off" else total.values
    summed = summed_negatives(settings, total.weight, values, total.clients, seed)
    matrix = torch.from_numpy(np.ascontiguousarray(summed))
    if settings.differential == "off":
        nobody = torch.nonzero(matrix.diagonal() >= total.clients)[:, 0].tolist()
        if nobody:
            raise LabellingError(
                f"Nobody labels class {nobody[0]}: every class must be positive for at least one client.{reasons}"
            )
    return NegativeClasses(matrix.float(), total.who)


def _beyond(values: Vector, limit: float) -> str | None:
    """Find numbers that a client that follows the rules does not send: under ``local`` its noise may be large."""
    largest = float(np.abs(values).max(initial=0.0))
    return f"it sent the number {largest:.3g}; at most {limit:.3g} is taken" if largest > limit else None


def _is_outer_product(values: Vector) -> bool:
    classes = round(len(values) ** 0.5)
    matrix = values.reshape(classes, classes)
    own = matrix.diagonal()
    return bool(np.isin(own, (0, 1)).all() and np.array_equal(matrix, np.outer(own, own)))
