"""Estimates that know what they are worth: each is moved towards the guess of no knowledge by its own uncertainty.

The guess is that all classes are even inside U. Everything here is about priors inside U, of one client.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64

from fedpu.priors.estimators import Estimate
from fedpu.priors.estimators.simplex import project

MOSTLY_GUESSED = 0.5
"""mean weight of a client's estimates below which they are more guess than estimate"""


class Shrunk(NamedTuple):
    """Shares that were moved towards even ones."""

    values: Float[np.ndarray, " C"]
    variance: Float[np.ndarray, " C"]
    """what is left open about each value"""
    weights: Float[np.ndarray, " C"]
    """how much of each value is estimate and not guess, between 0 and 1"""


def sampling_variance(labelled: Int64[np.ndarray, " C"], unlabelled: int) -> Float[np.ndarray, " C"]:
    """Return σ_i² = ¼ (1/n_i + 1/n_U), the largest variance of a difference of shares of n_i and of n_U examples.

    A bootstrap tells of the sample, and not of a classifier that was trained on few examples, which is what goes wrong
    where there are few. Measured, σ_i is about the root mean squared error of ``bbe`` with 20 to 40 labelled examples,
    and above it with more (``docs/priors.md``).
    """
    variance: Float[np.ndarray, " C"] = 0.25 * (1 / np.maximum(labelled, 1) + 1 / max(unlabelled, 1))
    return variance


def guess_variance(classes: int) -> float:
    """Return τ² = (C − 1) / (C² (C + 1)), a share's variance if all priors that add up to 1 are equally likely."""
    return (classes - 1) / (classes**2 * (classes + 1))


def shrunk_by_counts(priors: Float[np.ndarray, " C"], labelled: Int64[np.ndarray, " C"], unlabelled: int) -> Shrunk:
    """Return priors that were found from labelled examples as 1/C + w_i (θ_i − 1/C), with w_i = τ² / (τ² + σ_i²).

    That is the best linear estimate when nothing is known of the priors beforehand, and w_i σ_i² is its variance. A
    class that was not estimated stays NaN and has the weight 0.
    """
    known, even = np.isfinite(priors), 1 / len(priors)
    sampling, guess = sampling_variance(labelled, unlabelled), guess_variance(len(priors))
    weights = np.where(known, guess / (guess + sampling), 0.0)
    values = even + weights * (priors - even)
    values[known] = project(values[known], at_most=True)
    return Shrunk(np.where(known, values, np.nan), np.where(known, weights * sampling, np.nan), weights)


def shrunk_by_model(
    values: Float[np.ndarray, " C"],
    em: Float[np.ndarray, " C"],
    count: Float[np.ndarray, " C"],
    unlabelled: int,
    among: Bool[np.ndarray, " C"],
) -> Shrunk:
    """Return the shares of some classes among each other as a model finds them, moved towards even ones.

    ``em`` believes the model's posteriors and ``count`` its decisions. Where they differ the posteriors are wrong in
    size, and how far they differ stands for the error of either, beside that of counting n examples:
    σ_c² = (em_c − count_c)² + count_c (1 − count_c) / n. With d the distances to even shares, the weight of all classes
    is that of James and Stein, max(0, 1 − Σσ²/Σd²). What is left open is w σ_c² + (1 − w) τ². Other classes have 0.
    """
    values, em, count_within, even = (_within(s, among) for s in (values, em, count, np.ones_like(values)))
    examples = max(1.0, unlabelled * float(count[among].sum()))
    error = np.where(among, (em - count_within) ** 2 + count_within * (1 - count_within) / examples, 0.0)
    distance = float(((values - even) ** 2).sum())
    weight = max(0.0, 1 - float(error.sum()) / distance) if distance > 0 else 0.0
    left_open = np.where(among, weight * error + (1 - weight) * guess_variance(int(among.sum())), 0.0)
    return Shrunk(even + weight * (values - even), left_open, np.where(among, weight, 0.0))


def even_shares(among: Bool[np.ndarray, " C"]) -> Shrunk:
    """Return the guess itself, for a model that can't be trusted yet."""
    even = _within(np.ones(len(among)), among)
    return Shrunk(even, np.where(among, guess_variance(int(among.sum())), 0.0), np.zeros(len(among)))


def with_range(estimate: Estimate, shrunk: Shrunk, bounds: bool = True) -> Estimate:
    """Return the estimate with shrunk priors and, as ``bounds``, the range θ ± z √variance cut to [0, 1].

    The range is no bootstrap: it reaches 0 wherever the data leave open that there is nothing.
    """
    known = np.isfinite(shrunk.values)
    labelled = known & estimate.labelled
    negative = float(np.clip(1 - shrunk.values[labelled].sum(), 0, 1))
    moved = replace(estimate, priors=shrunk.values, negative=negative, weights=shrunk.weights, unshrunk=estimate.priors)
    if not bounds:
        return moved
    quantile = NormalDist().inv_cdf((1 + estimate.level) / 2)
    reach = quantile * np.sqrt(shrunk.variance)
    total = quantile * float(np.sqrt(shrunk.variance[labelled].sum()))
    return replace(
        moved,
        lower=np.clip(shrunk.values - reach, 0, 1),
        upper=np.clip(shrunk.values + reach, 0, 1),
        negative_lower=max(0.0, negative - total),
        negative_upper=min(1.0, negative + total),
    )


def mostly_guessed(weights: Float[np.ndarray, " _"]) -> bool:
    """Are priors with these weights more guess than estimate?"""
    return float(weights.mean()) < MOSTLY_GUESSED


def warning(guessed: int, clients: int) -> str | None:
    """Say that priors are more guess than estimate, where they are."""
    if not guessed:
        return None
    return (
        f"For {guessed} of {clients} clients the priors of the classes that they label are more guess than estimate: "
        "their data tell too little, so that these priors stay near even shares of the unlabelled data. If you know "
        'the shares, set priors.source = "given"; else label more examples of each class (a hundred tell something, '
        "three hundred a good deal)."
    )


def _within(shares: Float[np.ndarray, " C"], among: Bool[np.ndarray, " C"]) -> Float[np.ndarray, " C"]:
    some = np.where(among, shares + 1e-12, 0.0)
    scaled: Float[np.ndarray, " C"] = some / max(float(some.sum()), 1e-12)
    return scaled
