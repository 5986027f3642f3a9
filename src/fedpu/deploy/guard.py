"""Privacy in a deployment: every client protects its own part, and the server sees what the settings let it see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from flwr.app import RecordDict
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.config import Config
from fedpu.deploy.protocol import NEGATIVES, SECURE_NEGATIVES, SECURE_TRAIN, TRAIN_PRIVATE
from fedpu.deploy.sums import Sum, plain_sum, secure_sum
from fedpu.engine import ModelState, Update, Work
from fedpu.engine.flower.clients import Complete, group, work_messages
from fedpu.engine.flower.exchange import Exchange
from fedpu.errors import LabellingError, TrainingError
from fedpu.privacy import Guard, Privacy, lent_rules, mean_update, secure_rules, summed_negatives
from fedpu.privacy.mechanism import Vector

REACH = 1e-6
"""how far rounding may take a clipped update beyond its bound"""


class DeployedGuard(Guard):
    """Makes the protected mean of a round from the parts that clients have protected on their own machines."""

    def __init__(
        self, config: Config, network: nn.Module, clients: int, exchange: Exchange, complete: Complete
    ) -> None:
        super().__init__(config.privacy, network, config.aggregation, clients, config.seed, lends=config.method.lends)
        self._exchange = exchange
        self._complete = complete

    def combined(self, model: ModelState, work: Sequence[Work], updates: Iterable[Update], round_: int) -> Update:
        """Return the protected mean of a round as one update; plain updates are not asked for."""
        exchange, settings = self._exchange, self.settings
        exchange.left_out.clear()
        messages = work_messages(model, work, self._complete)
        if settings.secure_aggregation:
            rules = secure_rules(settings, len(work), self.layout.length)
            total = secure_sum(exchange, rules, SECURE_TRAIN, messages, group(work))
        else:
            total = plain_sum(exchange, TRAIN_PRIVATE, messages, self.layout.length, group(work), self._fault)
        if work:  # a Poisson draw may be empty, and is a round all the same
            exchange.refuse_too_few(total.clients, round_)
        mean = mean_update(settings, total.weight, total.values, self.expected, self.seed, round_)
        first = work[0].client if work else 0
        return Update(first, 1, self.layout.moved(model, mean), {}, clients=total.clients)

    def _fault(self, change: Vector) -> str | None:
        """Say what is wrong with an update: under ``central`` the noise hides no more than a clip."""
        norm = float(np.linalg.norm(change))
        limits = [limit for limit in (self._exchange.rules.max_norm,) if limit is not None]
        if self.settings.differential == "central":
            limits.append(self.settings.clip * (1 + REACH))
        return next((f"its update has norm {norm:.3g}, more than {limit:g}" for limit in limits if norm > limit), None)


def summed_negative_classes(
    settings: Privacy, exchange: Exchange, about: RecordDict, clients: int, classes: int, seed: int
) -> Float[Tensor, "C C"]:
    """Form Σ_q n_q n_qᵀ, once, of all clients: everybody's part is needed."""
    messages = dict.fromkeys(range(clients), about)
    exchange.left_out.clear()
    if settings.secure_aggregation:
        total = secure_sum(exchange, lent_rules(settings, clients, classes), SECURE_NEGATIVES, messages, "negatives")
    else:
        exact = settings.differential != "local"
        check = _no_outer_product if exact else lambda values: None
        total = plain_sum(exchange, NEGATIVES, messages, classes**2, "negatives", check)
    _refuse_incomplete(total, clients, exchange)
    matrix = torch.from_numpy(np.ascontiguousarray(summed_negatives(settings, total.values, clients, seed)))
    if settings.differential == "off":
        matrix = matrix.reshape(classes, classes).round()
        nobody = torch.nonzero(matrix.diagonal() >= clients)[:, 0].tolist()
        if nobody:
            raise LabellingError(
                f"Nobody labels class {nobody[0]}: every class must be positive for at least one client."
            )
    return matrix.float()


def _refuse_incomplete(total: Sum, clients: int, exchange: Exchange) -> None:
    if total.clients < clients:
        told = "; ".join(f"{name}: {reason}" for name, reason in exchange.left_out.items())
        raise TrainingError(f"The sum over clients that the lent term needs is not complete. {told}")


def _no_outer_product(values: Vector) -> str | None:
    classes = round(len(values) ** 0.5)
    matrix = values.reshape(classes, classes)
    own = matrix.diagonal()
    if np.isin(own, (0, 1)).all() and np.array_equal(matrix, np.outer(own, own)):
        return None
    return "it sent something else than its part of the sum over clients"
