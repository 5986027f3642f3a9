"""A client's own class priors, estimated from its data and the global model alone."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from fedpu.labelling import Client, Federation, Scenario
from fedpu.priors.estimators import Count, Em, Estimate, ScoreEstimator
from fedpu.priors.shrinkage import (
    Shrunk,
    even_shares,
    mostly_guessed,
    shrunk_by_counts,
    shrunk_by_model,
    warning,
    with_range,
)
from fedpu.priors.source import Priors


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

    ``logits`` are the global model's on all entries of the client, None where there is no model. An
    estimator that knows the client's positive classes alone leaves the others to em and the model.
    """
    own = own_estimate(client, logits, settings, seed=seed, bootstrap=bootstrap, level=level)
    if logits is None or settings.others == "even" or np.isfinite(own.priors).all():
        return own
    if settings.shrink:
        return _with_others(own, client, logits, settings, seed)
    every = Em().estimate({}, _posteriors(client, logits), seed=seed, bootstrap=bootstrap, level=level)
    unknown = ~np.isfinite(own.priors)
    scale = np.where(unknown, own.negative / max(float(every.priors[unknown].sum()), 1e-12), 1.0)
    return replace(
        own,
        priors=divided(own.priors, every.priors),
        lower=np.where(unknown, np.clip(scale * every.lower, 0, 1), own.lower),
        upper=np.where(unknown, np.clip(scale * every.upper, 0, 1), own.upper),
    )


def _with_others(own: Estimate, client: Client, logits: Float[Tensor, "r C"], settings: Priors, seed: int) -> Estimate:
    """Return the shrunk estimate with the classes that it lacks as the model finds them, shrunk too.

    A class that takes the share s of what is left, L, is left open by L² Var(s) + s² Var(L).
    """
    unknown = ~np.isfinite(own.priors)
    em = _model_estimate(Em(), client, logits, seed)
    others = _shrunk_by_model(em, client, logits, settings, seed, unknown)
    reach = np.where(unknown, 0, own.upper - own.lower) / 2
    quantile = NormalDist().inv_cdf((1 + own.level) / 2)
    left_reach = np.sqrt((reach**2).sum())
    others_reach = np.sqrt(own.negative**2 * quantile**2 * others.variance + others.values**2 * left_reach**2)
    priors = divided(own.priors, others.values)
    assert own.weights is not None
    assert own.unshrunk is not None
    return replace(
        own,
        priors=priors,
        lower=np.where(unknown, np.clip(priors - others_reach, 0, 1), own.lower),
        upper=np.where(unknown, np.clip(priors + others_reach, 0, 1), own.upper),
        weights=np.where(unknown, others.weights, own.weights),
        unshrunk=divided(own.unshrunk, em),
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
    """Return what the configured estimator finds, shrunk if so set; classes that it can't tell are NaN.

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
    resamples = 0 if settings.shrink else bootstrap  # what is left open about shrunk priors comes from the counts
    found = estimator.estimate(
        positives, values[labels < 0], seed=seed, classes=len(client.positive), bootstrap=resamples, level=level
    )
    if not settings.shrink:
        return found
    if estimator.needs == "scores":
        assert logits is not None
        everything = np.ones(len(found.priors), dtype=bool)
        return with_range(
            found, _shrunk_by_model(found.priors, client, logits, settings, seed, everything), bootstrap > 0
        )
    counts = client.summary
    return with_range(
        found, shrunk_by_counts(found.priors, counts.labelled.numpy(), int(counts.unlabelled)), bootstrap > 0
    )


def model_shares(
    client: Client, logits: Float[Tensor, "r C"], settings: Priors, seed: int, among: Bool[np.ndarray, " C"]
) -> Float[np.ndarray, " C"]:
    """Return the class shares inside U that em finds with the global model, shrunk among each other if so set."""
    em = _model_estimate(Em(), client, logits, seed)
    return _shrunk_by_model(em, client, logits, settings, seed, among).values if settings.shrink else em


def _shrunk_by_model(
    values: Float[np.ndarray, " C"],
    client: Client,
    logits: Float[Tensor, "r C"],
    settings: Priors,
    seed: int,
    among: Bool[np.ndarray, " C"],
) -> Shrunk:
    if confidence(client, logits) < settings.trust:
        return even_shares(among)
    em, count = (_model_estimate(kind, client, logits, seed) for kind in (Em(), Count()))
    return shrunk_by_model(values, em, count, int(client.summary.unlabelled), among)


def _model_estimate(
    estimator: ScoreEstimator, client: Client, logits: Float[Tensor, "r C"], seed: int
) -> Float[np.ndarray, " C"]:
    return estimator.estimate({}, _posteriors(client, logits), seed=seed, bootstrap=0).priors


def divided(own: Float[np.ndarray, " C"], others: Float[np.ndarray, " C"] | None) -> Float[np.ndarray, " C"]:
    """Return the priors with the classes that are NaN sharing what is left: as ``others`` says, or evenly."""
    unknown = ~np.isfinite(own)
    left = max(0.0, 1 - float(own[~unknown].sum()))
    weights = np.ones_like(own) if others is None else others + 1e-12
    return np.where(unknown, left * weights / max(float(weights[unknown].sum()), 1e-12), own)


def guessing_warning(federation: Federation, settings: Priors) -> str | None:
    """Say of how many clients the estimates will be more guess than estimate, as far as counts can tell.

    Where a model is to tell the priors (a score estimator, or a client with too few examples for the estimator) nothing
    can be said before there is one.
    """
    if settings.source != "estimated" or not settings.shrink or settings.looks_at_model:
        return None
    fewest = settings.make_estimator().fewest
    every = federation.summary(torch.arange(len(federation)))
    guessed = 0
    for labelled, unlabelled in zip(every.labelled.numpy(), every.unlabelled.tolist(), strict=True):
        estimated = labelled > 0
        if unlabelled < fewest or bool((labelled[estimated] < fewest).any()) or not estimated.any():
            guessed += unlabelled > 0 and settings.others == "even"
            continue
        weights = shrunk_by_counts(np.where(estimated, 0.0, np.nan), labelled, unlabelled).weights
        guessed += mostly_guessed(weights[estimated])
    return warning(guessed, len(federation))


def _posteriors(client: Client, logits: Float[Tensor, "r C"]) -> Float[np.ndarray, "_ C"]:
    posteriors: Float[np.ndarray, "_ C"] = logits.softmax(dim=1).numpy()[client.labels.numpy() < 0]
    return posteriors


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
