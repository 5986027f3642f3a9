"""Clients that estimate their own class priors while they are trained.

Before it trains, a client whose last estimate is ``priors.every`` rounds old makes a new one from its own data and the
global model that it was just sent. Nothing of it goes back to the server. What an estimator finds in the examples alone
does not change and is found once; a prior that came from the model would be confirmed by the model that it trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.engine.base import Clients, Job, ModelState, Update, Work
from fedpu.errors import EstimationError
from fedpu.labelling import Client
from fedpu.method import Method
from fedpu.priors import Priors, confidence, divided, model_shares, outputs, own_estimate, population_priors
from fedpu.randomness import torch_seed

NEVER = -1


class OwnPriors(NamedTuple):
    """What a client keeps of its estimates from round to round."""

    priors: Float[Tensor, " C"]
    own: Float[Tensor, " C"]
    """what the configured estimator found, NaN where it found nothing"""
    last: int
    """round of the last estimate"""

    @classmethod
    def initial(cls, priors: Float[Tensor, " C"]) -> OwnPriors:
        """Start from a first guess."""
        return cls(priors.double(), torch.full_like(priors, torch.nan, dtype=torch.float64), NEVER)

    def due(self, round_: int, settings: Priors) -> bool:
        """Is it time for a new estimate?"""
        return self.last == NEVER or round_ - self.last >= settings.every


def estimates(priors: Priors, method: Method) -> bool:
    """Do clients estimate their priors with these settings?"""
    return priors.source == "estimated" and method.uses_unlabelled


def estimate(kept: OwnPriors, client: Client, network: nn.Module, settings: Priors, work: Work, seed: int) -> OwnPriors:
    """Bring a client's priors up to date, as far as its data and the global model (``network``) allow."""
    seed = torch_seed(seed, "priors", work.round, work.client)
    logits = outputs(client, network) if settings.needs_model else None
    if logits is not None and confidence(client, logits) < settings.trust:
        logits = None
    own = _own_priors(kept.own, client, logits, settings, seed)
    found = bool(own.isfinite().any())
    others = None
    if logits is not None and settings.others == "em" and bool((client.labels < 0).any()):
        others = model_shares(client, logits, seed)
    if others is None and not found:
        return kept
    facts = client.facts
    inside = divided(own.numpy(), others)
    new = torch.from_numpy(population_priors(inside, facts.labelled, int(facts.unlabelled), client.scenario))
    weight = 0.0 if kept.last == NEVER else settings.smoothing
    return OwnPriors(weight * kept.priors + (1 - weight) * new, own, work.round)


def _own_priors(
    before: Float[Tensor, " C"], client: Client, logits: Float[Tensor, "r C"] | None, settings: Priors, seed: int
) -> Float[Tensor, " C"]:
    """Return what the configured estimator finds, NaN where it can't tell: of too few examples it tells nothing.

    ``logits`` are those of a model that can be trusted, or None. Where the model plays no part, once is enough.
    """
    if logits is not None if settings.looks_at_model else not bool(before.isfinite().any()):
        with suppress(EstimationError):
            return torch.from_numpy(own_estimate(client, logits, settings, seed=seed).priors)
    return before


class Estimating(Clients):
    """Hands each client's work on with the priors that it has estimated so far."""

    def __init__(self, clients: Clients, job: Job, device: torch.device) -> None:
        assert job.federation.priors is not None
        self._clients = clients
        self._job = job
        self._network = job.initial_model().to(device)
        self._kept = [OwnPriors.initial(priors) for priors in job.federation.priors]

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        """Bring the priors of the round's clients up to date, then train them."""
        job, kept = self._job, self._kept
        due = [piece for piece in work if kept[piece.client].due(piece.round, job.priors)]
        if due:
            self._network.load_state_dict(model)
            for piece in due:
                client = job.federation.client(piece.client)
                kept[piece.client] = estimate(kept[piece.client], client, self._network, job.priors, piece, job.seed)
        return self._clients.update(
            model, [replace(piece, priors=tuple(kept[piece.client].priors.tolist())) for piece in work]
        )

    def kept(self) -> ModelState:
        """Return the priors by now, what clients found in their own data, and the round of each one's last estimate."""
        priors, own, last = zip(*self._kept, strict=True)
        return {"priors": torch.stack(priors), "own": torch.stack(own), "last": torch.tensor(last)}

    def restore(self, kept: ModelState) -> None:
        """Go on with the priors of a checkpoint."""
        if kept:
            rows = zip(kept["priors"].clone(), kept["own"].clone(), kept["last"].tolist(), strict=True)
            self._kept = [OwnPriors(*row) for row in rows]

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result."""
        return self._clients.left_out
