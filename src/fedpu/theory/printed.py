"""The statements exactly as the paper prints them, right or wrong; ``docs/theory.md`` says which are which.

Clients and classes are numbered from 1 here, as in the paper: some statements depend on the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from fedpu.errors import ConfigError
from fedpu.risk import RiskConstants, Terms
from fedpu.theory.concentration import log_inverse


def theorem1(i: int, labelled: Sequence[int], unlabelled: int, classes: int, v: float, delta: float) -> float:
    """``theorem1``: 2CV(Σ_{s∈P} 1/√n_s + 1/√n_U) + √(log(1/δ) / 2n_i), for E_i[ℓ_i − Σ_{m∉P} ℓ_m] less its mean.

    ``labelled`` are the n_s; ``i`` is the position of the class in it. It does not hold: the bracket has range 2.
    """
    return 2 * classes * v * _roots(labelled, unlabelled) + _deviation(labelled[i], delta)


def theorem2(i: int, labelled: Sequence[int], unlabelled: int, classes: int, v: float, delta: float) -> float:
    """``theorem2``: CV(Σ_{s∈P} 1/√n_s + 1/√n_U) + √(log(1/δ) / 2n_i), for E_i[ℓ_m] less its mean. It holds."""
    return classes * v * _roots(labelled, unlabelled) + _deviation(labelled[i], delta)


def lemma3_weight(client: int, negative: Sequence[int]) -> Fraction:
    """Return Π_{i∉P} |k − i| / k^|N| of ``lemma3``: k is the client's number, i those of its negative classes."""
    if client < 1:
        raise ConfigError(f"Client {client} has no weight in Lemma 3: clients are numbered from 1.")
    return Fraction(math.prod(abs(client - i) for i in negative), client ** len(negative))


def lemma3(client: int, constants: RiskConstants, wrong: Float[Tensor, "C C"]) -> Terms:
    """``lemma3``: the right-hand side, said to equal Σ_{m∉P} E_U[ℓ_m]. It does not, unless its weight is 0.

    r Σ_{i∈P} π_i Σ_{m∉P} E_i[ℓ'_m] + Σ_{m∉P} E_U[ℓ'_m] with r of :func:`lemma3_weight` and ℓ' = ℓ / (1 + r).
    """
    n = (~constants.positive).to(wrong.dtype)
    weight = float(lemma3_weight(client, [m + 1 for m in range(len(n)) if n[m]]))
    losses = wrong @ n / (1 + weight)
    labelled = weight * (constants.unlabelled_priors * (1 - n)) @ losses
    unlabelled = constants.unlabelled_priors @ losses
    return {"labelled": labelled, "unlabelled": unlabelled, "total": labelled + unlabelled}


def theorem4(
    weight: float,
    priors: Sequence[float],
    losses: Sequence[float],
    labelled: Sequence[int],
    unlabelled: int,
    classes: int,
    v: float,
    delta: float,
) -> float:
    """``theorem4``: the right-hand side, for Σ_{m∉P} E_U[ℓ_m] less the mean over U of Σ_{m∉P} ℓ_m / (1 + r).

    ``weight`` is r of :func:`lemma3_weight`; ``priors``, ``labelled`` and ``losses`` (the mean of Σ_{m∉P} ℓ_m over the
    class's labelled examples, which is 1 + r times that of ℓ') are those of the positive classes. It does not hold.
    """
    labelled_part = sum(
        p * (loss + (1 + weight) * _deviation(n, delta)) for p, loss, n in zip(priors, losses, labelled, strict=True)
    )
    complexity = (sum(priors) + 1) * classes * v * _roots(labelled, unlabelled)
    return labelled_part + complexity + _deviation(unlabelled, delta)


def theorem5(
    positive: Bool[Tensor, "K C"], labelled: Int64[Tensor, "K C"], unlabelled: Int64[Tensor, " K"]
) -> Float[Tensor, " K"]:
    """``theorem5``: C²(Σ_{i∈P} 1/√n_i + 1/√n_U) of each client; their sum is the order of the bound."""
    roots = torch.where(positive, labelled.double().rsqrt(), 0).sum(dim=1) + unlabelled.double().rsqrt()
    return positive.shape[1] ** 2 * roots


def supervised_order(examples: Int64[Tensor, "*K"], classes: int) -> Float[Tensor, "*K"]:
    """C²/√n, the order that ``theorem5`` is compared with: of each client, or of all data in one place."""
    return classes**2 * examples.double().rsqrt()


def ratio_to_clients(classes: int) -> float:
    """C√C: FedPU is said to be no worse than that many times fully supervised clients."""
    return classes * math.sqrt(classes)


def ratio_to_pooled(classes: int, clients: int) -> float:
    """CK√(CK): FedPU is said to be no worse than that many times fully supervised learning in one place."""
    return ratio_to_clients(classes * clients)


def _roots(labelled: Sequence[int], unlabelled: int) -> float:
    return sum(1 / math.sqrt(n) for n in (*labelled, unlabelled))


def _deviation(count: int, delta: float) -> float:
    return math.sqrt(log_inverse(delta) / (2 * count))
