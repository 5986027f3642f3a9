"""What a client does to its update before it leaves, and what the server does to the sum: DP-FedAvg (McMahan et al.
2018), with or without secure aggregation.

Under differential privacy every client has the weight 1: the number of its examples is private too, and with weights
n_k/n one client's part in the mean would have no bound. The server divides the noisy sum by the number of clients to
be expected, which is fixed, and not by the number that came.
"""

from __future__ import annotations

import numpy as np

from fedpu.privacy.mechanism import Vector, clipped, gaussian
from fedpu.privacy.secagg import Rules
from fedpu.privacy.settings import Privacy

REACH = 8
"""standard deviations of local noise that the range of secure aggregation leaves room for"""


def secure_rules(settings: Privacy, clients: int, length: int) -> Rules:
    """Return the rules of a round's secure sum of updates."""
    limit, weight = settings.quantisation_range, settings.max_examples
    if settings.differential != "off":
        limit, weight = largest_number(settings, settings.clip, settings.noise_multiplier), 1
    return _rules(settings, clients, length, limit, weight)


def protect(
    settings: Privacy, update: Vector, examples: int, seed: int, round_: int, client: int
) -> tuple[int, Vector]:
    """Return a client's weight and what it sends: its update, clipped and noisy as the settings ask for."""
    if settings.differential == "off":
        return examples, update
    short = clipped(update, settings.clip)
    if settings.differential == "central":
        return 1, short
    return 1, _noisy(settings, short, settings.clip, settings.noise_multiplier, seed, "local noise", round_, client)


def mean_update(settings: Privacy, weight: int, total: Vector, expected: float, seed: int, round_: int) -> Vector:
    """Return the mean update from Σ_k weight_k and Σ_k weight_k · update_k; ``central`` adds its noise to the sum."""
    if settings.differential == "central":
        noise = gaussian(settings.noise_source, len(total), seed, "central noise", round_)
        return (total + noise * (settings.noise_multiplier * settings.clip)) / expected
    return total / weight


def lent_rules(settings: Privacy, clients: int, classes: int, by_size: bool = False) -> Rules:
    """Return the rules of the one secure sum of negative classes; without noise its numbers are 0 and 1."""
    if settings.differential != "local":
        largest = settings.max_examples if by_size and settings.differential == "off" else 1
        return _rules(settings.model_copy(update={"quantisation_bits": 2}), clients, classes**2, 1.0, largest)
    limit = largest_number(settings, float(classes), settings.lent_noise_multiplier)
    return _rules(settings, clients, classes**2, limit, 1)


def lent_weight(settings: Privacy, examples: int, by_size: bool) -> int:
    """Return what a client counts in the sum of negative classes: as much as in the mean of updates, or 1.

    Under differential privacy its number of examples is private, and it counts 1 in the mean of updates, too.
    """
    return examples if by_size and settings.differential == "off" else 1


def protect_negatives(settings: Privacy, negative: Vector, seed: int, client: int) -> Vector:
    """Return what a client sends for the lent term: v vᵀ of its negative classes v, with its own noise if local.

    Its norm is the number of negative classes, at most C: what ``clip`` is for an update.
    """
    pairs = np.outer(negative, negative).reshape(-1)
    if settings.differential != "local":
        return pairs
    classes = float(len(negative))
    return _noisy(settings, pairs, classes, settings.lent_noise_multiplier, seed, "local lent noise", client)


def summed_negatives(settings: Privacy, weight: int, total: Vector, clients: int, seed: int) -> Vector:
    """Return the sum as the clients get it, from Σ_q weight_q and Σ_q weight_q v_q v_qᵀ: per weight, times K.

    ``central`` adds its noise; noisy numbers are put back in order, so that every class has somebody who labels it.
    """
    classes = round(len(total) ** 0.5)
    if settings.differential == "central":
        noise = gaussian(settings.noise_source, len(total), seed, "central lent noise")
        total = total + noise * (settings.lent_noise_multiplier * classes)
    matrix = total.reshape(classes, classes)
    if settings.differential == "off":
        return matrix * clients / max(weight, 1)
    ordered: Vector = np.clip((matrix + matrix.T) / 2, 0, clients)
    np.fill_diagonal(ordered, np.minimum(ordered.diagonal(), clients - 1))
    return ordered


def _rules(settings: Privacy, clients: int, length: int, limit: float, weight: int) -> Rules:
    return Rules(
        clients=clients,
        length=length,
        range=limit,
        bits=settings.quantisation_bits,
        max_weight=weight,
        threshold=settings.threshold,
        neighbours=settings.neighbours,
    )


def largest_number(settings: Privacy, bound: float, multiplier: float) -> float:
    """Return the largest number that a client sends: its bound, and under ``local`` room for its own noise."""
    return bound * (1 + REACH * multiplier) if settings.differential == "local" else bound


def _noisy(
    settings: Privacy, vector: Vector, bound: float, multiplier: float, seed: int, purpose: str, *keys: int
) -> Vector:
    noise = gaussian(settings.noise_source, len(vector), seed, purpose, *keys)
    noisy = vector + noise * (multiplier * bound)
    if not settings.secure_aggregation:
        return noisy
    limit = largest_number(settings, bound, multiplier)
    cut: Vector = np.clip(noisy, -limit, limit)
    return cut
