"""Class priors that a client estimates while it is trained, as a part of the state that stays with it.

Before it trains, a client whose last estimate is ``priors.every`` rounds old makes a new one from its own data and the
model that it was just sent. Nothing of it goes back to the server. What an estimator finds in the examples alone does
not change and is found once; a prior that came from the model would be confirmed by the model that it trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from fedpu.errors import EstimationError
from fedpu.labelling import Client
from fedpu.priors.local import confidence, divided, model_shares, own_estimate, population_priors
from fedpu.priors.source import Priors
from fedpu.round import Tensors

NEVER = -1
PRIORS, OWN, LAST = "priors", "own", "last"
"""names in the state: the priors by now; what the configured estimator found, NaN where it found nothing; the round of
the last estimate
"""
MOST_CLIENTS = 100
"""clients up to which a record has a value for each of them"""

Outputs = Callable[[], Float[Tensor, "r C"]]


def first_guess(priors: Float[Tensor, " C"]) -> Tensors:
    """Return the state of a client that has estimated nothing yet."""
    unknown = torch.full_like(priors, torch.nan, dtype=torch.float64)
    return {PRIORS: priors.double().clone(), OWN: unknown, LAST: torch.tensor(NEVER)}


def refreshed(state: Tensors, client: Client, outputs: Outputs, settings: Priors, round_: int, seed: int) -> Tensors:
    """Return the state with a new estimate where one is due, as far as the client's data and the model allow."""
    last = int(state[LAST])
    if last != NEVER and round_ - last < settings.every:
        return state
    logits = outputs() if settings.needs_model else None
    if logits is not None and confidence(client, logits) < settings.trust:
        logits = None
    own = _own_priors(state[OWN], client, logits, settings, seed)
    others, unknown = None, ~own.isfinite().numpy()
    if logits is not None and settings.others == "em" and unknown.any() and bool((client.labels < 0).any()):
        others = model_shares(client, logits, settings, seed, unknown)
    if others is None and not bool(own.isfinite().any()):
        return state
    summary = client.summary
    inside = divided(own.numpy(), others)
    new = torch.from_numpy(population_priors(inside, summary.labelled, int(summary.unlabelled), client.scenario))
    weight = 0.0 if last == NEVER else settings.smoothing
    return {PRIORS: weight * state[PRIORS] + (1 - weight) * new, OWN: own, LAST: torch.tensor(round_)}


def _own_priors(
    before: Float[Tensor, " C"], client: Client, logits: Float[Tensor, "r C"] | None, settings: Priors, seed: int
) -> Float[Tensor, " C"]:
    """Return what the configured estimator finds, NaN where it can't tell; too few examples tell it nothing.

    ``logits`` are those of a model that can be trusted, or None. Where the model plays no part, once is enough.
    """
    if logits is not None if settings.looks_at_model else not bool(before.isfinite().any()):
        with suppress(EstimationError):
            return torch.from_numpy(own_estimate(client, logits, settings, seed=seed).priors)
    return before


def priors_report(
    states: Mapping[int, Tensors],
    first: Float[Tensor, "K C"],
    number: int,
    true_priors: Float[Tensor, "K C"] | None,
) -> dict[str, Any]:
    """Return what the record says of a round (counted from 1) that brought new estimates; nothing of others.

    ``states`` are those of the clients that have taken part, ``first`` the guesses that all of them began with.
    """
    new = [k for k, state in states.items() if int(state[LAST]) == number - 1]
    if not new:
        return {}
    priors = first.double().clone()
    for k, state in states.items():
        priors[k] = state[PRIORS]
    report: dict[str, Any] = {"estimated": len(new)}
    if len(priors) <= MOST_CLIENTS:
        report["values"] = [[round(value, 5) for value in row] for row in priors.tolist()]
    if true_priors is not None:
        report["mean_absolute_error"] = float((priors - true_priors).abs().mean())
    return {"priors": report}
