"""A client's own class priors, estimated from its data and the global model alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fedpu.labelling import Client, Scenario
from fedpu.priors.estimators import Em, Estimate
from fedpu.priors.source import Priors

CHUNK = 1000
"""examples that go through the network at once"""


def estimate_client(
    client: Client,
    logits: Float[Tensor, "r C"] | None,
    settings: Priors,
    *,
    seed: int,
    bootstrap: int = 0,
    level: float = 0.95,
) -> Estimate:
    """Return the priors inside the client's unlabelled data, of all classes that can be told.

    ``logits`` are the global model's on all entries of the client (:func:`outputs`), None where there is no model. An
    estimator that knows the client's positive classes alone leaves the others to em and the model.
    """
    own = own_estimate(client, logits, settings, seed=seed, bootstrap=bootstrap, level=level)
    if logits is None or settings.others == "even" or np.isfinite(own.priors).all():
        return own
    every = Em().estimate({}, _posteriors(client, logits), seed=seed, bootstrap=bootstrap, level=level)
    unknown = ~np.isfinite(own.priors)
    scale = np.where(unknown, own.negative / max(float(every.priors[unknown].sum()), 1e-12), 1.0)
    return replace(
        own,
        priors=divided(own.priors, every.priors),
        lower=np.where(unknown, np.clip(scale * every.lower, 0, 1), own.lower),
        upper=np.where(unknown, np.clip(scale * every.upper, 0, 1), own.upper),
    )


def own_estimate(
    client: Client,
    logits: Float[Tensor, "r C"] | None,
    settings: Priors,
    *,
    seed: int,
    bootstrap: int = 0,
    level: float = 0.95,
) -> Estimate:
    """Return what the configured estimator finds; classes that it can't tell are NaN.

    Estimators from scores are handed the model's posteriors. Others look at the examples themselves or, with
    ``priors.features = "model"``, at the model's logits.
    """
    estimator = settings.make_estimator()
    if not settings.looks_at_model:
        values = client.batch(torch.arange(len(client.labels)))[0].flatten(1).numpy()
    else:
        assert logits is not None
        values = (logits.softmax(dim=1) if estimator.needs == "scores" else logits).numpy()
    labels = client.labels.numpy()
    positives = {int(c): values[labels == c] for c in np.unique(labels[labels >= 0])}
    return estimator.estimate(
        positives, values[labels < 0], seed=seed, classes=len(client.positive), bootstrap=bootstrap, level=level
    )


def model_shares(client: Client, logits: Float[Tensor, "r C"], seed: int) -> Float[np.ndarray, " C"]:
    """Return the class shares inside U that em finds with the global model."""
    return Em().estimate({}, _posteriors(client, logits), seed=seed, bootstrap=0).priors


def divided(own: Float[np.ndarray, " C"], others: Float[np.ndarray, " C"] | None) -> Float[np.ndarray, " C"]:
    """Return the priors with the classes that are NaN sharing what is left: as ``others`` says, or evenly."""
    unknown = ~np.isfinite(own)
    left = max(0.0, 1 - float(own[~unknown].sum()))
    weights = np.ones_like(own) if others is None else others + 1e-12
    return np.where(unknown, left * weights / max(float(weights[unknown].sum()), 1e-12), own)


def _posteriors(client: Client, logits: Float[Tensor, "r C"]) -> Float[np.ndarray, "_ C"]:
    posteriors: Float[np.ndarray, "_ C"] = logits.softmax(dim=1).numpy()[client.labels.numpy() < 0]
    return posteriors


@torch.no_grad()
def outputs(client: Client, network: nn.Module) -> Float[Tensor, "r C"]:
    """Return the network's logits on all entries of a client."""
    network.eval()
    device = next(network.parameters()).device
    positions = torch.arange(len(client.labels)).split(CHUNK)
    return torch.cat([network(client.batch(chunk)[0].to(device)).cpu() for chunk in positions]).double()


def confidence(client: Client, logits: Float[Tensor, "r C"]) -> float:
    """Return how sure the model is of its decisions on the client's unlabelled data: the mean of the largest posterior.

    A model that has learned little spreads its posteriors, and what is estimated from them is worse than no knowledge.
    """
    unlabelled = logits[client.labels < 0]
    return float(unlabelled.softmax(dim=1).amax(dim=1).mean()) if len(unlabelled) else 1.0


def population_priors(
    inside: Float[np.ndarray, " C"],
    labelled: Int64[Tensor, " C"],
    unlabelled: int,
    scenario: Scenario,
) -> Float[np.ndarray, " C"]:
    """Return the priors of the client's population from those inside U, the inverse of ``unlabelled_priors``.

    In the censored scenario π_i = (n_i + θ_i n_U) / n.
    """
    if scenario == "case-control":
        return inside
    counts = labelled.numpy()
    return np.asarray((counts + inside * unlabelled) / max(1, int(counts.sum()) + unlabelled))
