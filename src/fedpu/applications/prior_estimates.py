"""The class priors of every client, estimated: what ``fedpu priors`` shows."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import nn

from fedpu.applications.experiment import resume, run_prepared
from fedpu.applications.prepared import Prepared, prepare
from fedpu.applications.training import OnRound
from fedpu.config import Config
from fedpu.data import Dataset
from fedpu.engine import client_outputs
from fedpu.errors import EstimationError
from fedpu.labelling import Client
from fedpu.priors import estimate_client, population_priors
from fedpu.priors.shrinkage import mostly_guessed, warning
from fedpu.randomness import torch_seed
from fedpu.record import RunDirectory

Shares = Float[np.ndarray, " C"]


@dataclass(frozen=True, eq=False)
class ClientPriors:
    """A client's class priors in its population, with intervals, beside its true class shares where those are known."""

    client: int
    positive: list[int]
    estimate: Shares | None
    """NaN for a class that the estimator can't tell"""
    lower: Shares | None
    upper: Shares | None
    negative: tuple[float, float, float] | None
    """all classes that the client does not label together: estimate, lower and upper bound"""
    truth: Shares | None
    guess: Shares
    """the priors of somebody who takes all classes as even in the unlabelled data"""
    unshrunk: Shares | None = None
    """the estimates before they were moved towards the guess, where they were"""
    weights: Shares | None = None
    """how much of each estimate that is, between 0 and 1; the rest is the guess"""
    error: str | None = None
    """why there is no estimate"""

    @property
    def true_negative(self) -> float | None:
        """The true share of the classes that the client does not label."""
        return None if self.truth is None else float(np.delete(self.truth, self.positive).sum())

    @property
    def mostly_guessed(self) -> bool:
        """Are the priors of the classes that it labels more guess than estimate?"""
        return self.weights is not None and bool(self.positive) and mostly_guessed(self.weights[self.positive])

    def deviations(self) -> list[float]:
        """Return |estimate − truth| of every class that has both."""
        return _deviations(self.estimate, self.truth)

    def guess_deviations(self) -> list[float]:
        """Return |guess − truth| of the same classes."""
        known = None if self.estimate is None else np.where(np.isfinite(self.estimate), self.guess, np.nan)
        return _deviations(known, self.truth)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        classes = [] if self.estimate is None else range(len(self.estimate))
        assert self.estimate is None or (self.lower is not None and self.upper is not None)
        return {
            "client": self.client,
            "positive": self.positive,
            "priors": [
                {
                    "class": c,
                    "positive": c in self.positive,
                    "estimate": _number(self.estimate, c),
                    "lower": _number(self.lower, c),
                    "upper": _number(self.upper, c),
                    "unshrunk": _number(self.unshrunk, c),
                    "weight": _number(self.weights, c),
                    "guess": _number(self.guess, c),
                    "truth": _number(self.truth, c),
                }
                for c in classes
            ],
            "negative": None
            if self.negative is None
            else dict(zip(("estimate", "lower", "upper"), self.negative, strict=True)) | {"truth": self.true_negative},
            "mean_absolute_error": statistics.fmean(self.deviations()) if self.deviations() else None,
            "error": self.error,
        }


def _deviations(values: Shares | None, truth: Shares | None) -> list[float]:
    if values is None or truth is None:
        return []
    return [float(value) for value in np.abs(values - truth) if np.isfinite(value)]


def _number(values: Shares | None, c: int) -> float | None:
    return float(values[c]) if values is not None and np.isfinite(values[c]) else None


@dataclass(frozen=True, eq=False)
class PriorEstimates:
    """The estimates of all clients."""

    config: Config
    rounds: int
    level: float
    accuracy: float | None
    """of the global model that was used, if one was"""
    clients: list[ClientPriors]

    @property
    def mean_absolute_error(self) -> float | None:
        """Mean of |estimate − truth| over all clients and the classes that the estimator can tell."""
        every = [value for client in self.clients for value in client.deviations()]
        return statistics.fmean(every) if every else None

    @property
    def guess_error(self) -> float | None:
        """Mean of |guess − truth| over the same, the guess being that all classes are even in the unlabelled data."""
        every = [value for client in self.clients for value in client.guess_deviations()]
        return statistics.fmean(every) if every else None

    @property
    def warning(self) -> str | None:
        """What to say where estimates are more guess than estimate."""
        guessed = sum(client.mostly_guessed for client in self.clients) if self.config.priors.shrink else 0
        return warning(guessed, len(self.clients))

    def to_dict(self) -> dict[str, Any]:
        """Return them as plain data."""
        return {
            "estimator": self.config.priors.estimator,
            "rounds": self.rounds,
            "accuracy": self.accuracy,
            "level": self.level,
            "mean_absolute_error": self.mean_absolute_error,
            "mean_absolute_error_of_the_guess": self.guess_error,
            "warnings": [self.warning] if self.warning else [],
            "clients": [client.to_dict() for client in self.clients],
            "config": self.config.to_dict(),
        }


def estimate_priors(
    config: Config,
    *,
    data: Dataset | None = None,
    out: str | Path | None = None,
    bootstrap: int = 100,
    level: float = 0.95,
    on_round: OnRound | None = None,
) -> PriorEstimates:
    """Estimate the priors of every client from nothing but its own data and a global model.

    The model is trained as configured, its clients starting from no knowledge of their priors; an estimator that looks
    at the examples themselves needs no training at all. With ``out`` the run is recorded there, or gone on with.
    """
    config = config.with_("priors.source=estimated") if config.priors.values is None else _without_values(config)
    if not config.priors.needs_model:
        prepared = prepare(config, data)
        return _estimates(config, prepared, None, 0, None, bootstrap, level)
    if out is not None and RunDirectory(Path(out)).config_file.exists():
        result = resume(out, data=data, on_round=on_round)
        config = result.config
        prepared = prepare(config, data, RunDirectory.open(Path(out)).partition())
    else:
        prepared = prepare(config, data)
        result = run_prepared(config, prepared, out, on_round)
    return _estimates(config, prepared, result.model, config.aggregation.rounds, result.accuracy, bootstrap, level)


def _without_values(config: Config) -> Config:
    priors = config.priors.model_copy(update={"source": "estimated", "values": None})
    return config.model_copy(update={"priors": priors})


def _estimates(
    config: Config,
    prepared: Prepared,
    network: nn.Module | None,
    rounds: int,
    accuracy: float | None,
    bootstrap: int,
    level: float,
) -> PriorEstimates:
    clients = [_client(config, prepared, network, k, bootstrap, level) for k in range(len(prepared.federation))]
    errors = [client.error for client in clients if client.error is not None]
    if len(errors) == len(clients):
        raise EstimationError(errors[0])
    return PriorEstimates(config, rounds, level, accuracy, clients)


def _client(
    config: Config, prepared: Prepared, network: nn.Module | None, k: int, bootstrap: int, level: float
) -> ClientPriors:
    client = prepared.federation.client(k)
    positive = client.positive.nonzero()[:, 0].tolist()
    truth = None if prepared.true_priors is None else prepared.true_priors[k].double().numpy()
    classes = len(client.positive)
    guess = _population(np.full(classes, 1 / classes), client)
    try:
        estimate = estimate_client(
            client,
            None if network is None else client_outputs(client, network),
            config.priors,
            seed=torch_seed(config.seed, "final priors", k),
            bootstrap=bootstrap,
            level=level,
        )
    except EstimationError as error:
        return ClientPriors(k, positive, None, None, None, None, truth, guess, error=str(error))
    low, middle, high = (_population(values, client) for values in (estimate.lower, estimate.priors, estimate.upper))
    share = _unlabelled_share(client)
    negative = (share * estimate.negative, share * estimate.negative_lower, share * estimate.negative_upper)
    unshrunk = None if estimate.unshrunk is None else _population(estimate.unshrunk, client)
    return ClientPriors(k, positive, middle, low, high, negative, truth, guess, unshrunk, estimate.weights)


def _population(inside: Shares, client: Client) -> Shares:
    """Return priors or bounds in the client's population; a class that can't be told stays NaN."""
    summary = client.summary
    return population_priors(inside, summary.labelled, int(summary.unlabelled), client.scenario)


def _unlabelled_share(client: Client) -> float:
    """Return the share of the population that U stands for; what is not in U is of positive classes."""
    summary = client.summary
    if client.scenario == "case-control":
        return 1.0
    return int(summary.unlabelled) / max(1, int(summary.unlabelled) + int(summary.labelled.sum()))
