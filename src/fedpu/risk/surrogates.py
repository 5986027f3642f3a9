"""Surrogates: differentiable stand-ins for 1[f(x) ≠ m], being wrong about m, and for 1[f(x) = m], deciding for m."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from fedpu.registry import Registry

EPSILON = 1e-6


class Surrogate(NamedTuple):
    """Both stand-ins for every example and class. Where a risk subtracts ``wrong``, training adds ``right`` instead."""

    wrong: Float[Tensor, "n C"]
    right: Float[Tensor, "n C"]


def absolute(logits: Float[Tensor, "n C"]) -> Surrogate:
    """ℓ_m = 1 − p_m. Exact: every identity of the paper holds for it, since the p_m sum to one. It learns slowly."""
    p = logits.softmax(dim=1)
    return Surrogate(wrong=1 - p, right=p)


def log(logits: Float[Tensor, "n C"]) -> Surrogate:
    """ℓ_m = −log p_m, and −log(1 − p_m + ε) for deciding for m: the trainable one. Both are bounded below by zero."""
    log_p = logits.log_softmax(dim=1)
    return Surrogate(wrong=-log_p, right=-torch.log(1 - log_p.exp() + EPSILON))


def sigmoid(logits: Float[Tensor, "n C"]) -> Surrogate:
    """ℓ_m = σ(−z_m): the bounded, symmetric loss of binary PU learning (Kiryo et al. 2017), one class against the
    rest.
    """
    return Surrogate(wrong=torch.sigmoid(-logits), right=torch.sigmoid(logits))


SURROGATES: Registry[Callable[[Tensor], Surrogate]] = Registry(
    "surrogate", {"log": log, "absolute": absolute, "sigmoid": sigmoid}, group="fedpu.surrogates"
)
