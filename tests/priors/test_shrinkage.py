"""Estimates that are moved towards even classes: against simulation, closed forms, and the guess on real small data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpu.applications.experiment import run
from fedpu.applications.prepared import prepare
from fedpu.applications.prior_estimates import estimate_priors
from fedpu.config import Config
from fedpu.priors import estimate_client, guessing_warning
from fedpu.priors.estimators import Bbe, Estimate
from fedpu.priors.shrinkage import (
    even_shares,
    guess_variance,
    sampling_variance,
    shrunk_by_counts,
    shrunk_by_model,
    warning,
    with_range,
)
from fedpu.report.priors import priors_table

ALL = np.ones(10, dtype=bool)


def estimated(priors: list[float], level: float = 0.95) -> Estimate:
    values = np.array(priors)
    nothing = np.full(len(values), np.nan)
    return Estimate(values, nothing, nothing, 0.0, np.nan, np.nan, level, np.isfinite(values))


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_variance_of_the_guess_is_that_of_priors_of_which_nothing_is_known(classes: int) -> None:
    assert guess_variance(classes) == pytest.approx(stats.dirichlet.var(np.ones(classes))[0])


def test_no_difference_of_shares_varies_more_than_the_sampling_variance() -> None:
    shares = np.linspace(0, 1, 101)
    most = (shares * (1 - shares) / 20)[:, None] + shares * (1 - shares) / 380
    assert sampling_variance(np.array([20]), 380)[0] == pytest.approx(most.max())


@pytest.mark.parametrize("labelled", [20, 100, 1000])
def test_the_weight_is_the_slope_of_the_truth_on_its_estimate(labelled: int) -> None:
    """Draw priors of which nothing is known and estimates with that error, and fit the truth to them by a line."""
    rng, unlabelled, counts = np.random.default_rng(0), 5000, np.array([labelled] + [0] * 9)
    truth = rng.dirichlet(np.ones(10), size=400_000)[:, 0]
    sigma = sampling_variance(counts, unlabelled)[0] ** 0.5
    found = truth + rng.normal(scale=sigma, size=len(truth))
    slope, intercept = np.polyfit(found, truth, 1)
    rest = [np.nan] * 9
    one, other = (shrunk_by_counts(np.array([value, *rest]), counts, unlabelled) for value in (0.1, 0.6))
    assert one.weights[0] == pytest.approx(slope, abs=0.01)
    assert other.values[0] == pytest.approx(intercept + slope * 0.6, abs=0.01)
    assert other.variance[0] == pytest.approx(np.var(truth - intercept - slope * found), rel=0.02)
    assert np.isnan(one.values[1:]).all()


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.lists(st.integers(1, 500), min_size=3, max_size=3))
def test_shrunk_shares_add_up_to_one_at_most_and_never_leave_the_way_to_the_guess(
    priors: list[float], labelled: list[int]
) -> None:
    found = shrunk_by_counts(np.array([*priors, np.nan]), np.array([*labelled, 0]), 100)
    assert found.values[:3].sum() <= 1 + 1e-9
    assert (found.values[:3] >= 0).all()
    if sum(priors) <= 1:
        even = np.full(3, 0.25)
        assert (np.abs(found.values[:3] - even) <= np.abs(np.array(priors) - even) + 1e-9).all()


def test_a_model_is_believed_as_far_as_posteriors_and_decisions_agree() -> None:
    skewed = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.04, 0.04, 0.04, 0.04, 0.04])
    agreed = shrunk_by_model(skewed, skewed, skewed, 10**6, ALL)
    np.testing.assert_allclose(agreed.values, skewed, atol=1e-4)
    contradicted = shrunk_by_model(skewed, skewed, skewed[::-1].copy(), 10**6, ALL)
    np.testing.assert_allclose(contradicted.values, 0.1)
    assert contradicted.weights.tolist() == [0.0] * 10
    np.testing.assert_allclose(contradicted.variance, guess_variance(10))
    some = np.arange(10) >= 8
    alone = shrunk_by_model(skewed, skewed, skewed, 10**6, some)
    np.testing.assert_allclose(alone.values, [0.0] * 8 + [0.5] * 2, atol=1e-9)
    np.testing.assert_allclose(even_shares(some).values, alone.values)


@pytest.mark.parametrize(("truth", "gains"), [(np.full(10, 0.1), 0.5), (np.array([0.55] + [0.05] * 9), -0.01)])
def test_shrinking_counts_costs_next_to_nothing_and_gains_where_classes_are_even(
    truth: np.ndarray, gains: float
) -> None:
    rng, plain, moved = np.random.default_rng(0), [], []
    for _ in range(300):
        shares = rng.multinomial(200, truth) / 200
        plain.append(((shares - truth) ** 2).sum())
        moved.append(((shrunk_by_model(shares, shares, shares, 200, ALL).values - truth) ** 2).sum())
    assert np.mean(moved) < (1 - gains) * np.mean(plain)


def test_ranges_reach_zero_where_nothing_may_be_there() -> None:
    labelled = np.array([300] + [0] * 9)
    low, high = (
        with_range(
            estimated([value] + [np.nan] * 9), shrunk_by_counts(np.array([value] + [np.nan] * 9), labelled, 5700)
        )
        for value in (0.02, 0.4)
    )
    assert low.lower[0] == 0
    assert low.upper[0] > 0.02
    assert high.lower[0] > 0.2
    assert low.negative_upper == 1
    assert low.unshrunk is not None
    assert low.unshrunk[0] == 0.02


@pytest.mark.parametrize("seed", range(3))
def test_the_range_of_an_estimate_holds_a_prior_of_zero(seed: int) -> None:
    """Two clouds that overlap; none of the unlabelled examples is of the labelled class."""
    rng = np.random.default_rng(seed)
    positives, unlabelled = rng.normal(loc=1.0, size=(100, 4)), rng.normal(loc=-1.0, size=(400, 4))
    found = Bbe(classifier="logistic").estimate({0: positives}, unlabelled, seed=seed, classes=2, bootstrap=20)
    shrunk = with_range(found, shrunk_by_counts(found.priors, np.array([100, 0]), 400))
    assert found.priors[0] < 0.2
    assert shrunk.lower[0] == 0


def test_nothing_is_said_where_there_is_nothing_to_say() -> None:
    assert warning(0, 10) is None
    assert "For 3 of 10 clients" in str(warning(3, 10))


def quickstart(*changes: str) -> Config:
    return Config.load(preset="quickstart").with_("priors.source=estimated", "engine.workers=1", *changes)


def test_quickstart_is_warned_of_and_plenty_of_labels_are_not() -> None:
    few = quickstart()
    assert "For 10 of 10 clients" in str(guessing_warning(prepare(few).federation, few.priors))
    for change in ("priors.shrink=false", "priors.estimator=em", "priors.source=known"):
        other = few.with_(change)
        assert guessing_warning(prepare(other).federation, other.priors) is None
    many = quickstart("partition.clients=2", "labelling.positive=5")
    assert guessing_warning(prepare(many).federation, many.priors) is None


def test_clients_of_quickstart_are_not_much_worse_off_than_with_the_guess() -> None:
    config = quickstart("priors.others=even")
    ready = prepare(config)
    plain, shrunk, guessed = [], [], []
    for k in range(4):
        client = ready.federation.client(k)
        counts = client.summary
        assert ready.true_priors is not None
        everybody = counts.labelled.numpy()
        hidden = (ready.true_priors[k].numpy() * len(client.labels) - everybody) / int(counts.unlabelled)
        found = estimate_client(client, None, config.priors, seed=k)
        assert found.unshrunk is not None
        own = np.flatnonzero(np.isfinite(found.priors))
        for values, errors in ((found.unshrunk[own], plain), (found.priors[own], shrunk), ([0.1], guessed)):
            # What is taken too much by one class is missing to the nine others: twice the error over ten classes.
            errors.append(2 * float(np.abs(values - hidden[own]).sum()) / 10)
    assert np.mean(shrunk) < np.mean(guessed) + 0.01
    assert np.mean(shrunk) < np.mean(plain)


def test_digits_have_estimates_that_are_not_worse_than_the_guess_and_say_what_they_are(tmp_path: Path) -> None:
    config = Config.load(preset="quickstart").with_(
        "data.name=digits",
        "model.name=mlp",
        "partition.clients=4",
        "labelling.positive=3",
        "labelling.overlap=true",
        "aggregation.lr=0.1",
        "engine.workers=1",
    )
    found = estimate_priors(config, out=tmp_path / "r")
    assert found.mean_absolute_error is not None
    assert found.guess_error is not None
    assert found.mean_absolute_error <= found.guess_error + 0.01
    told = found.to_dict()
    assert told["mean_absolute_error_of_the_guess"] == found.guess_error
    assert told["warnings"] == [found.warning]
    assert json.loads((tmp_path / "r/result.json").read_text())["warnings"] == [found.warning]
    assert "95% range" in str(priors_table(found).title)
    assert "even in the unlabelled data" in str(priors_table(found).caption)
    first = told["clients"][0]["priors"][0]
    assert 0 <= first["weight"] <= 1
    assert min(first["estimate"], first["unshrunk"], first["guess"]) >= 0


def test_runs_tell_whoever_listens_that_priors_are_mostly_guessed(tiny_config: Config) -> None:
    notes: list[str] = []
    few = tiny_config.with_("priors.source=estimated", "aggregation.rounds=1", "partition.clients=4").with_(
        "labelling.positive=3", "labelling.overlap=true"
    )
    result = run(few, on_note=notes.append)
    assert notes == result.summary["warnings"]
    assert "more guess than estimate" in notes[0]
    assert "warnings" not in run(few.with_("priors.shrink=false")).summary
