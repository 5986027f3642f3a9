"""The ε that is reported: dp-accounting's, the exact one of the Gaussian mechanism, and below published bounds."""

from __future__ import annotations

import math
import sys

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy import optimize, stats

from fedpu.applications.prepared import prepare
from fedpu.applications.training import guard_of
from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.privacy import Guard, accountant


def guard(tiny_config: Config, *changes: str, clients: int = 1000) -> Guard:
    config = tiny_config.with_("method.lent=off", *changes)
    network = config.model.build((1, 8, 8), 10)
    made = guard_of(config, network, clients, 10)
    assert made is not None
    return made


def exact_gaussian(sigma: float, delta: float) -> float:
    """Theorem 8 of Balle & Wang (2018), solved for ε."""

    def excess(epsilon: float) -> float:
        upper, lower = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
        return float(stats.norm.cdf(upper) - math.exp(epsilon) * stats.norm.cdf(lower)) - delta

    return float(optimize.brentq(excess, 0, 100, xtol=1e-12))


@pytest.mark.parametrize(("multiplier", "rounds"), [(1.0, 1), (4.0, 10), (10.0, 200)])
def test_without_sampling_epsilon_is_the_exact_one_of_the_gaussian_mechanism(
    tiny_config: Config, multiplier: float, rounds: int
) -> None:
    spent = guard(tiny_config, "privacy.differential=central", f"privacy.noise_multiplier={multiplier}").spent(rounds)
    assert spent is not None
    assert spent.epsilon == pytest.approx(exact_gaussian(multiplier / math.sqrt(rounds), 1e-5), rel=1e-6)
    direct = dp_accounting.get_epsilon_gaussian(multiplier / math.sqrt(rounds), 1e-5)
    assert spent.epsilon == pytest.approx(direct, rel=1e-12)
    assert spent.delta == 1e-5
    if (multiplier, rounds) == (1.0, 1):
        assert spent.epsilon == pytest.approx(4.377, abs=5e-4)


def test_with_poisson_sampling_epsilon_is_dp_accountings_of_adding_or_removing_a_client(tiny_config: Config) -> None:
    spent = guard(
        tiny_config,
        "privacy.differential=central",
        "privacy.noise_multiplier=0.9",
        "privacy.delta=1e-6",
        "aggregation.participation=0.1",
    ).spent(30)
    direct = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-3)
    direct.compose(dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(0.9)), 30)
    assert spent is not None
    assert spent.epsilon == direct.get_epsilon(1e-6)
    finer = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    finer.compose(dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(0.9)), 30)
    assert finer.get_epsilon(1e-6) <= spent.epsilon <= 1.001 * finer.get_epsilon(1e-6)


def test_with_a_fixed_number_drawn_epsilon_is_dp_accountings_of_replacing_a_client(tiny_config: Config) -> None:
    """Replacing a client moves a sum of clipped updates by up to two clips: half the multiplier."""
    spent = guard(
        tiny_config,
        "privacy.differential=central",
        "privacy.noise_multiplier=6",
        "privacy.sampling=fixed",
        "aggregation.participation=0.05",
    ).spent(20)
    direct = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.SampledWithoutReplacementDpEvent(1000, 50, dp_accounting.GaussianDpEvent(3.0))
    direct.compose(event, 20)
    assert spent is not None
    assert spent.epsilon == direct.get_epsilon(1e-5)


def test_abadi_and_others_published_bound_is_met() -> None:
    """Deep Learning with Differential Privacy (2016), section 3.2: q = .01, σ = 4, δ = 1e-5, 10,000 steps: 1.26."""
    ours = accountant.poisson_epsilon(4.0, 0.01, 10_000, None, 1e-5)
    assert 0.9 < ours < 1.26


def test_the_lent_sum_counts_once(tiny_config: Config) -> None:
    settings = ["privacy.differential=central", "privacy.noise_multiplier=2", "privacy.lent_noise_multiplier=3"]
    lending = guard(tiny_config, *settings, "method.lent=printed").spent(5)
    silent = guard(tiny_config, *settings).spent(5)
    released = guard(tiny_config, *settings, "method.lent=printed", "method.surrogate=released-code").spent(5)
    assert lending is not None
    assert silent is not None
    assert lending.epsilon == pytest.approx(exact_gaussian((5 / 4 + 1 / 9) ** -0.5, 1e-5), rel=1e-6)
    assert silent.epsilon == pytest.approx(exact_gaussian((5 / 4) ** -0.5, 1e-5), rel=1e-6)
    assert released == silent, "the released code's loss lends nothing"
    sampled = [*settings, "aggregation.participation=0.2"]
    for change in ("privacy.sampling=poisson", "privacy.sampling=fixed"):
        with_sum = guard(tiny_config, *sampled, change, "method.lent=printed").spent(5)
        without = guard(tiny_config, *sampled, change).spent(5)
        assert with_sum is not None
        assert without is not None
        assert with_sum.epsilon is not None
        assert without.epsilon is not None
        assert with_sum.epsilon > without.epsilon


def test_local_epsilon_is_that_of_the_client_that_took_part_most(tiny_config: Config) -> None:
    """Any two updates are up to two clips apart, and nobody hides in a draw that the server makes."""
    settings = ["privacy.differential=local", "privacy.noise_multiplier=3", "aggregation.participation=0.5"]
    local = guard(tiny_config, *settings, clients=10)
    times = [0] * 10
    for round_ in range(4):
        for client in local.select(round_):
            times[client] += 1
    spent = local.spent(4)
    assert spent is not None
    assert max(times) > 2
    assert spent.epsilon == pytest.approx(exact_gaussian(1.5 / math.sqrt(max(times)), 1e-5), rel=1e-6)
    assert local.spent(4) == guard(tiny_config, *settings, clients=10).spent(4), "asked twice, or once"


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_sampling(tiny_config: Config) -> None:
    def epsilon(multiplier: float, share: float, rounds: int) -> float:
        changes = [f"privacy.noise_multiplier={multiplier}", f"aggregation.participation={share}"]
        spent = guard(tiny_config, "privacy.differential=central", *changes).spent(rounds)
        assert spent is not None
        assert spent.epsilon is not None
        return spent.epsilon

    assert epsilon(1, 0.1, 2) < epsilon(1, 0.1, 20) < epsilon(0.8, 0.1, 20)
    assert epsilon(1, 0.01, 20) < epsilon(1, 0.1, 20) < epsilon(1, 1, 20)


@pytest.mark.parametrize("kind", ["central", "local"])
@pytest.mark.parametrize("sampling", ["poisson", "fixed"])
def test_no_noise_is_no_guarantee(tiny_config: Config, kind: str, sampling: str) -> None:
    settings = [f"privacy.differential={kind}", "privacy.noise_multiplier=0", f"privacy.sampling={sampling}"]
    for share in (0.5, 1):
        spent = guard(tiny_config, *settings, f"aggregation.participation={share}").spent(1)
        assert spent is not None
        assert spent.epsilon is None


def test_each_guard_says_what_its_epsilon_is_about(tiny_config: Config) -> None:
    central = ["privacy.differential=central", "aggregation.participation=0.5"]
    assert "adding or removing" in guard(tiny_config, *central).meaning
    assert "replacing" in guard(tiny_config, *central, "privacy.sampling=fixed").meaning
    assert "adding" in guard(tiny_config, *central, "privacy.sampling=fixed", "aggregation.participation=1").meaning
    assert "own releases" in guard(tiny_config, "privacy.differential=local").meaning
    assert guard(tiny_config, "privacy.secure_aggregation=true").spent(3) is None


@pytest.mark.parametrize(
    ("setting", "module", "extra"),
    [
        ("privacy.differential=central", "dp_accounting", "privacy"),
        ("privacy.secure_aggregation=true", "flwr.common.secure_aggregation.crypto.shamir", "flower"),
    ],
)
def test_what_is_missing_is_named_before_any_work_is_done(
    tiny_config: Config, monkeypatch: pytest.MonkeyPatch, setting: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pip install 'fedpu\[{extra}\]'"):
        guard(tiny_config, setting)
    assert prepare(tiny_config) is not None


def test_where_too_few_clients_for_a_secure_sum_leave_noise_alone_epsilon_counts_two_clips(tiny_config: Config) -> None:
    settings = ["privacy.differential=central", "privacy.noise_multiplier=0.9", "aggregation.participation=0.1"]
    secure = [*settings, "privacy.secure_aggregation=true"]

    def epsilon(changes: list[str], clients: int) -> float:
        spent = guard(tiny_config, *changes, clients=clients).spent(10)
        assert spent is not None
        assert spent.epsilon is not None
        return spent.epsilon

    # With 100 clients to be expected nobody is ever drawn alone; with two, somebody often is.
    assert epsilon(secure, 1000) == pytest.approx(epsilon(settings, 1000), rel=1e-9)
    assert epsilon(secure, 20) == pytest.approx(accountant.poisson_epsilon(0.45, 0.1, 10, None, 1e-5), rel=1e-9)
    assert epsilon(secure, 20) > epsilon(settings, 20)


def test_that_bound_holds_by_enumeration() -> None:
    """One round on a line: clients that send 1 each, K or K + 1 of them; δ by integrating the densities."""
    q, clients, sigma, epsilon = 0.3, 3, 2.0, 0.5
    x = np.linspace(-30, 40, 200_001)

    def density(count: int) -> np.ndarray:
        chances = [math.comb(count, s) * q**s * (1 - q) ** (count - s) for s in range(count + 1)]
        return sum(p * stats.norm.pdf(x, s if s >= 2 else 0, sigma) for s, p in enumerate(chances))  # type: ignore[return-value]

    few, more = density(clients), density(clients + 1)
    for first, second in ((few, more), (more, few)):
        delta = float(np.trapezoid(np.maximum(first - math.exp(epsilon) * second, 0), x))
        if delta > 1e-12:
            assert accountant.secure_poisson_epsilon(sigma, q, clients, 1, None, delta) >= epsilon - 1e-2
