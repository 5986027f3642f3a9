"""bbe and elkan-noto: thresholds by brute force, exact worlds, and cross-fitted scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu.data import Dataset
from fedpu.errors import EstimationError
from fedpu.priors.estimators import Bbe, ElkanNoto
from fedpu.priors.estimators.classifier import Kind
from priors.estimators.worlds import blobs


def literal_bbe(positives: np.ndarray, unlabelled: np.ndarray, delta: float = 0.1, gamma: float = 0.01) -> float:
    """Algorithm 1 as it is written."""
    best, estimate = np.inf, 1.0
    for c in sorted({*positives.tolist(), *unlabelled.tolist()}):
        q_p, q_u = (positives >= c).mean(), (unlabelled >= c).mean()
        if q_p == 0:
            continue
        slack = np.sqrt(np.log(4 / delta) / (2 * len(unlabelled))) + np.sqrt(np.log(4 / delta) / (2 * len(positives)))
        bound = q_u / q_p + (1 + gamma) / q_p * slack
        if bound < best - 1e-12:
            best, estimate = bound, q_u / q_p
    return min(estimate, 1.0)


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.booleans())
def test_the_best_bin_is_that_of_the_papers_algorithm(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    p, u = rng.normal(1, 1, size=30), rng.normal(0, 1.5, size=45)
    if ties:
        p, u = np.round(p), np.round(u)
    found = Bbe(classifier="none").estimate({0: p[:, None]}, u[:, None], seed=0, bootstrap=0)
    assert found.priors[0] == pytest.approx(literal_bbe(p, u))


@pytest.mark.parametrize("variant", ["e1", "e2", "e3"])
@settings(max_examples=10)
@given(share=st.integers(1, 100))
def test_a_classifier_that_is_right_is_read_exactly(variant: str, share: int) -> None:
    """g = c on every positive and 0 elsewhere, c = n_P / (n_P + θ n_U)."""
    constant = 50 / (50 + share)
    u = np.r_[np.full(share, constant), np.zeros(100 - share)][:, None]
    p = np.full((50, 1), constant)
    if share == 100:
        u = np.r_[u, [[0.0]]]
        constant_share = 100 / 101
        p, u = p * 0 + 50 / 150, np.where(u > 0, 50 / 150, 0.0)
    else:
        constant_share = share / 100
    found = ElkanNoto(classifier="none", variant=variant).estimate({0: p}, u, seed=0, bootstrap=0)
    assert found.priors[0] == pytest.approx(constant_share, abs=1e-9)
    if share < 100:
        bins = Bbe(classifier="none").estimate({0: p}, u, seed=0, bootstrap=0)
        assert bins.priors[0] == pytest.approx(constant_share, abs=1e-9)


def test_a_classifiers_columns_serve_as_scores_of_several_classes() -> None:
    world = blobs([0.3, 0.2, 0.1, 0.4], (0, 2), 200, 400, seed=0)
    positives, unlabelled = world.scores
    found = Bbe(classifier="none").estimate(positives, unlabelled, seed=0, classes=4, bootstrap=20)
    np.testing.assert_allclose(found.priors[[0, 2]], [0.3, 0.1], atol=0.04)
    assert np.isnan(found.priors[[1, 3]]).all()
    with pytest.raises(EstimationError, match="3 columns and 2 labelled classes"):
        Bbe(classifier="none").estimate(world.positives, world.unlabelled, seed=0, classes=4)


def test_intervals_of_bbe_hold_the_truth_most_of_the_time() -> None:
    held = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        hidden = rng.random(300) < 0.4
        u = np.where(hidden, rng.uniform(1, 2, size=300), rng.uniform(0, 1, size=300))
        found = Bbe(classifier="none").estimate(
            {0: rng.uniform(1, 2, size=(300, 1))}, u[:, None], seed=seed, bootstrap=40, level=0.9
        )
        held.append(found.lower[0] <= 0.4 <= found.upper[0])
    assert np.mean(held) >= 0.65


@pytest.mark.parametrize("classifier", ["mlp", "logistic", "trees"])
def test_cross_fitting_needs_examples_for_its_folds(classifier: Kind) -> None:
    world = blobs([0.5, 0.0, 0.0, 0.5], (0,), 12, 40, seed=0)
    with pytest.raises(EstimationError, match=r"10 folds needs 20 examples.*smallest has 12"):
        Bbe(classifier=classifier, folds=10).estimate(world.positives, world.unlabelled, seed=0)


def test_even_digits_are_counted_among_handwritten_ones(digits: Dataset) -> None:
    features = digits.inputs.numpy().reshape(len(digits.inputs), -1) / 255.0
    even = digits.labels.numpy() % 2 == 0
    rng = np.random.default_rng(0)
    ours, others = rng.permutation(np.flatnonzero(even)), rng.permutation(np.flatnonzero(~even))
    unlabelled = features[np.r_[ours[300:500], others[:300]]]
    found = Bbe(folds=2, hidden=50, steps=150).estimate({0: features[ours[:300]]}, unlabelled, seed=0)
    assert found.priors[0] == pytest.approx(0.4, abs=0.05)
    assert found.lower[0] <= 0.4 <= found.upper[0]
