"""A client's own class priors, estimated from its data and the global model alone."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fedpu.labelling import Client, Scenario
from fedpu.priors.estimators import Estimate
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
    """Return the priors inside the client's unlabelled data, of all classes that the estimator can tell.

    ``logits`` are the global model's on all entries of the client (:func:`outputs`). Estimators from scores are handed
    its posteriors, others the logits or, with ``priors.features = "inputs"`` and no need of a model, the examples.
    """
    estimator = settings.make_estimator()
    if logits is None or (estimator.needs == "features" and settings.features == "inputs"):
        values = client.batch(torch.arange(len(client.labels)))[0].flatten(1).numpy()
    else:
        values = (logits.softmax(dim=1) if estimator.needs == "scores" else logits).numpy()
    labels = client.labels.numpy()
    positives = {int(c): values[labels == c] for c in np.unique(labels[labels >= 0])}
    return estimator.estimate(
        positives, values[labels < 0], seed=seed, classes=len(client.positive), bootstrap=bootstrap, level=level
    )


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

    In the censored scenario π_i = (n_i + θ_i n_U) / n. Classes that the estimator can't tell share what is left.
    """
    known = np.isfinite(inside)
    rest = max(0.0, 1 - float(inside[known].sum()))
    filled = np.where(known, inside, rest / max(1, int((~known).sum())))
    if scenario == "case-control":
        return np.asarray(filled)
    counts = labelled.numpy()
    return np.asarray((counts + filled * unlabelled) / max(1, int(counts.sum()) + unlabelled))
