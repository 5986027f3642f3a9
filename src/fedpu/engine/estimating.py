"""Clients that estimate their own class priors while they are trained.

Before it trains, a client whose last estimate is ``priors.every`` rounds old makes a new one from its own data and the
global model that it was just sent. Nothing of it goes back to the server. What an estimator finds in the examples alone
does not change and is found once; a prior that came from the model would be confirmed by the model that it trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from fedpu.engine.base import Clients, Job, ModelState, Update, Work
from fedpu.errors import EstimationError
from fedpu.labelling import Client
from fedpu.priors import confidence, divided, model_shares, outputs, own_estimate, population_priors
from fedpu.randomness import torch_seed

NEVER = -1


def estimates(job: Job) -> bool:
    """Do the clients of the job estimate their priors?"""
    return job.priors.source == "estimated" and job.method.uses_unlabelled


class Estimating(Clients):
    """Hands each client's work on with the priors that it has estimated so far."""

    def __init__(self, clients: Clients, job: Job, device: torch.device) -> None:
        assert job.federation.priors is not None
        self._clients = clients
        self._job = job
        self._network = job.initial_model().to(device)
        self._priors = job.federation.priors.double()
        self._own = torch.full_like(self._priors, torch.nan)
        self._last = torch.full((len(job.federation),), NEVER)

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        """Bring the priors of the round's clients up to date, then train them."""
        due = [piece for piece in work if self._due(piece)]
        if due:
            self._network.load_state_dict(model)
            for piece in due:
                self._estimate(piece)
        return self._clients.update(
            model, [replace(piece, priors=tuple(self._priors[piece.client].tolist())) for piece in work]
        )

    def kept(self) -> ModelState:
        """Return the priors by now, what clients found in their own data, and the round of each one's last estimate."""
        return {"priors": self._priors.clone(), "own": self._own.clone(), "last": self._last.clone()}

    def restore(self, kept: ModelState) -> None:
        """Go on with the priors of a checkpoint."""
        if kept:
            self._priors, self._own, self._last = (kept[name].clone() for name in ("priors", "own", "last"))

    def _due(self, piece: Work) -> bool:
        last, settings = int(self._last[piece.client]), self._job.priors
        return last == NEVER or piece.round - last >= settings.every

    def _estimate(self, piece: Work) -> None:
        """Bring a client's priors up to date, as far as its data and the model allow."""
        k, settings = piece.client, self._job.priors
        client = self._job.federation.client(k)
        seed = torch_seed(self._job.seed, "priors", piece.round, k)
        logits = outputs(client, self._network) if settings.needs_model else None
        if logits is not None and confidence(client, logits) < settings.trust:
            logits = None
        own = self._own_priors(client, k, logits, seed)
        others = None
        if logits is not None and settings.others == "em" and bool((client.labels < 0).any()):
            others = model_shares(client, logits, seed)
        if others is None and not np.isfinite(own).any():
            return
        facts = client.facts
        inside = divided(own, others)
        new = torch.from_numpy(population_priors(inside, facts.labelled, int(facts.unlabelled), client.scenario))
        weight = 0.0 if int(self._last[k]) == NEVER else settings.smoothing
        self._priors[k] = weight * self._priors[k] + (1 - weight) * new
        self._last[k] = piece.round

    def _own_priors(
        self, client: Client, k: int, logits: Float[Tensor, "r C"] | None, seed: int
    ) -> Float[np.ndarray, " C"]:
        """Return what the configured estimator finds, NaN where it can't tell: of too few examples it tells nothing.

        ``logits`` are those of a model that can be trusted, or None.
        """
        settings = self._job.priors
        found = bool(self._own[k].isfinite().any())
        # Where the model plays no part in it, once is enough.
        if logits is not None if settings.looks_at_model else not found:
            with suppress(EstimationError):
                self._own[k] = torch.from_numpy(own_estimate(client, logits, settings, seed=seed).priors)
        return self._own[k].numpy()
