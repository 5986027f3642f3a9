"""Clients that estimate their own class priors while they are trained.

Before it trains, a client whose last estimate is ``priors.every`` rounds old makes a new one from its own data and the
global model that it was just sent. Nothing of it goes back to the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from fedpu.engine.base import Clients, Job, ModelState, Update, Work
from fedpu.errors import EstimationError
from fedpu.priors import confidence, estimate_client, outputs, population_priors
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
        self._last = torch.full((len(job.federation),), NEVER)

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        """Bring the priors of the round's clients up to date, then train them."""
        due = [piece for piece in work if self._due(piece)]
        if due:
            self._network.load_state_dict(model)
            errors = [error for piece in due if (error := self._estimate(piece)) is not None]
            if len(errors) == len(due):  # a setting that suits no client, not one odd client
                raise errors[0]
        return self._clients.update(
            model, [replace(piece, priors=tuple(self._priors[piece.client].tolist())) for piece in work]
        )

    def kept(self) -> ModelState:
        """Return the priors by now, and the round of each client's last estimate."""
        return {"priors": self._priors.clone(), "last": self._last.clone()}

    def restore(self, kept: ModelState) -> None:
        """Go on with the priors of a checkpoint."""
        if kept:
            self._priors, self._last = kept["priors"].clone(), kept["last"].clone()

    def _due(self, piece: Work) -> bool:
        last, settings = int(self._last[piece.client]), self._job.priors
        return last == NEVER or piece.round - last >= settings.every

    def _estimate(self, piece: Work) -> EstimationError | None:
        """Make a new estimate; a client that does not trust the model yet, or whose data do not allow an estimate,
        keeps the priors that it has.
        """
        k, settings = piece.client, self._job.priors
        client = self._job.federation.client(k)
        seed = torch_seed(self._job.seed, "priors", piece.round, k)
        logits = outputs(client, self._network) if settings.needs_model else None
        if logits is not None and confidence(client, logits) < settings.trust:
            return None
        try:
            inside = estimate_client(client, logits, settings, seed=seed).priors
        except EstimationError as error:
            return error
        facts = client.facts
        new = torch.from_numpy(
            np.array(population_priors(inside, facts.labelled, int(facts.unlabelled), client.scenario))
        )
        weight = 0.0 if int(self._last[k]) == NEVER else settings.smoothing
        self._priors[k] = weight * self._priors[k] + (1 - weight) * new
        self._last[k] = piece.round
        return None
