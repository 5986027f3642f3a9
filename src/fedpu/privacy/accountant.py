"""What has been spent: ε for a δ after so many releases, by Google's dp-accounting.

Every ε is a function of the settings and of the number of releases alone, so that a resumed run reports what the run
would have reported.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

from fedpu.errors import ConfigError

INTERVAL = 1e-3
"""grid of the privacy loss distribution; ε is rounded up to it, and comes out less than 0.1 % too large"""


def need_dp_accounting() -> None:
    """Say what to install where the accountant is missing."""
    _dp_accounting()


def gaussian_epsilon(releases: Iterable[tuple[float | None, int]], delta: float) -> float:
    """Return ε of Gaussian releases: pairs of a noise multiplier (None: no such release) and how often it was used.

    Together they are one Gaussian mechanism with 1/σ² = Σ count / multiplier², whose ε is exact (Balle & Wang 2018).
    """
    used = [(multiplier, count) for multiplier, count in releases if multiplier is not None and count]
    if any(multiplier == 0 for multiplier, _ in used):
        return math.inf
    precision = sum(count / multiplier**2 for multiplier, count in used)
    return float(_dp_accounting().get_epsilon_gaussian(precision**-0.5, delta)) if precision else 0.0


@lru_cache(maxsize=4096)
def poisson_epsilon(multiplier: float, probability: float, rounds: int, once: float | None, delta: float) -> float:
    """Return ε of rounds in which every client took part with that probability, and of one release by all of them
    with the multiplier ``once``; neighbouring federations differ by adding or removing a client.
    """
    if multiplier == 0 or once == 0:
        return math.inf
    dp, pld = _dp_accounting(), import_module("dp_accounting.pld")
    accountant = pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, INTERVAL)
    accountant.compose(dp.PoissonSampledDpEvent(probability, dp.GaussianDpEvent(multiplier)), rounds)
    if once is not None:
        accountant.compose(dp.GaussianDpEvent(once))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=4096)
def secure_poisson_epsilon(
    multiplier: float, probability: float, clients: int, rounds: int, once: float | None, delta: float
) -> float:
    """Return ε of :func:`poisson_epsilon` where a draw of fewer than two clients releases noise alone.

    Adding a client to a draw of one turns noise into the sum of both: two clips, not one. Two bounds hold, and the
    better one is returned: two clips in every round, which is half the multiplier; or one clip in every round but
    those in which exactly one other client is drawn, whose probability is taken off δ.
    """
    halves = poisson_epsilon(multiplier / 2, probability, rounds, once, delta)
    left = delta - rounds * max(_exactly_one(probability, others) for others in (clients - 1, clients))
    if left <= 0:
        return halves
    return min(halves, poisson_epsilon(multiplier, probability, rounds, once, left))


def _exactly_one(probability: float, others: int) -> float:
    return float(others * probability * (1 - probability) ** max(others - 1, 0))


@lru_cache(maxsize=4096)
def fixed_epsilon(multiplier: float, drawn: int, clients: int, rounds: int, once: float | None, delta: float) -> float:
    """Return ε of rounds with a fixed number of clients drawn without replacement, and of one release by all of them.

    Neighbouring federations differ by replacing a client with another: that changes a sum of clipped updates by up to
    two clips, so the accountant is told half of each multiplier. It has Rényi bounds for this draw (Wang et al. 2019).
    """
    if multiplier == 0 or once == 0:
        return math.inf
    dp, rdp = _dp_accounting(), import_module("dp_accounting.rdp")
    accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    event = dp.SampledWithoutReplacementDpEvent(clients, drawn, dp.GaussianDpEvent(multiplier / 2))
    accountant.compose(event, rounds)
    if once is not None:
        accountant.compose(dp.GaussianDpEvent(once / 2))
    return float(accountant.get_epsilon(delta))


def _dp_accounting() -> Any:
    try:
        return import_module("dp_accounting")
    except ImportError as error:
        raise ConfigError(
            "Differential privacy needs an accountant, which is not installed: pip install 'fedpu[privacy]'."
        ) from error
