"""em, bbse and calibration, against answers had by other means."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from fedpu.errors import EstimationError
from fedpu.priors.estimators import Bbse, Em
from fedpu.priors.estimators.base import Sample
from fedpu.priors.estimators.calibration import fit_calibration
from fedpu.priors.estimators.em import most_likely
from priors.estimators.worlds import CENTRES, TABLE, Table


def random_scores(seed: int, n: int = 40, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=n)


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_em_is_the_maximum_of_the_likelihood(seed: int) -> None:
    """No point of a fine grid on the simplex is more likely."""
    scores, training = random_scores(seed), np.array([0.2, 0.3, 0.5])
    found = Em().estimate({}, scores, seed=0, bootstrap=0, training_priors=training).priors
    ratios = scores / training
    grid = np.array([(a, b, 50 - a - b) for a, b in itertools.product(range(51), repeat=2) if a + b <= 50]) / 50
    assert np.log(ratios @ found).mean() >= np.log(np.maximum(ratios @ grid.T, 1e-300)).mean(axis=0).max() - 1e-6


def test_em_and_bbse_are_exact_where_counts_are_exactly_those_expected() -> None:
    unlabelled = TABLE.unlabelled(TABLE.posteriors)
    for estimator in (Em(steps=20_000, tolerance=1e-12), Bbse()):
        found = estimator.estimate({}, unlabelled, seed=0, bootstrap=0, training_priors=TABLE.training_priors)
        np.testing.assert_allclose(found.priors, TABLE.theta, atol=2e-3)
        assert found.negative == 1.0


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["soft", "hard"]))
def test_bbse_with_the_confusion_matrix_needs_no_honest_posteriors(seed: int, predictions: str) -> None:
    """Any scores at all: if the mean predictions of the classes differ, the priors are theirs exactly."""
    rng = np.random.default_rng(seed)
    theta = rng.multinomial(20, [1 / 3] * 3) / 20
    world = Table(TABLE.likelihood, TABLE.training_priors, theta)
    scores = rng.dirichlet(np.ones(3), size=5)
    decided = scores if predictions == "soft" else np.eye(3)[scores.argmax(axis=1)]
    confusion = world.likelihood @ decided
    found = Bbse(predictions=predictions).estimate(
        {}, world.unlabelled(scores), seed=0, bootstrap=0, confusion=confusion
    )
    np.testing.assert_allclose(found.priors @ confusion, theta @ confusion, atol=1e-5)
    if np.linalg.cond(confusion) < 50:
        np.testing.assert_allclose(found.priors, theta, atol=1e-3)


def test_bbse_measures_the_rows_of_classes_that_have_positives() -> None:
    scores = np.random.default_rng(1).dirichlet(np.ones(3), size=5)
    positives = {c: TABLE.positives(c, scores) for c in range(3)}
    found = Bbse().estimate(positives, TABLE.unlabelled(scores), seed=0, bootstrap=0)
    np.testing.assert_allclose(found.priors, TABLE.theta, atol=1e-4)
    assert found.negative == pytest.approx(0, abs=1e-9)
    only = Bbse().estimate(
        {0: positives[0]},
        TABLE.unlabelled(scores),
        seed=0,
        bootstrap=0,
        confusion=np.vstack([np.full(3, np.nan), TABLE.likelihood[1:] @ scores]),
    )
    np.testing.assert_allclose(only.priors, TABLE.theta, atol=1e-4)
    assert only.negative == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize(
    ("bias", "temperature", "better", "worse"), [((-1, 0, 0), 0.3, "em", "bbse"), ((0, 0, -1), 0.5, "bbse", "em")]
)
def test_a_class_without_positives_can_be_far_better_told_by_either_where_posteriors_are_wrong(
    bias: tuple[float, ...], temperature: float, better: str, worse: str
) -> None:
    """Three normal clouds; the last class has no labelled examples. Right posteriors make both right."""
    theta, centres = np.array([0.5, 0.3, 0.2]), 2 * np.eye(3)

    def errors(seed: int, offset: tuple[float, ...], scale: float) -> dict[str, float]:
        rng = np.random.default_rng(seed)

        def scores(x: np.ndarray) -> np.ndarray:
            return softmax(scale * (-0.5 * ((x[:, None] - centres) ** 2).sum(axis=2) + np.array(offset)), axis=1)

        positives = {c: scores(centres[c] + rng.normal(size=(400, 3))) for c in (0, 1)}
        hidden = centres[np.repeat(np.arange(3), (theta * 2000).round().astype(int))]
        unlabelled = scores(hidden + rng.normal(size=hidden.shape))
        return {
            "em": abs(Em().estimate({}, unlabelled, seed=0, bootstrap=0).priors[2] - theta[2]),
            "bbse": abs(Bbse().estimate(positives, unlabelled, seed=0, bootstrap=0).priors[2] - theta[2]),
        }

    wrong = [errors(seed, bias, temperature) for seed in range(3)]
    assert np.mean([e[worse] for e in wrong]) > 0.1
    assert np.mean([e[better] for e in wrong]) < 0.04
    right = [errors(seed, (0, 0, 0), 1.0) for seed in range(3)]
    assert max(value for e in right for value in e.values()) < 0.02


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([Em(), Bbse(), Bbse(predictions="hard")]))
def test_neither_the_order_of_examples_nor_the_names_of_classes_matter(seed: int, estimator: Em | Bbse) -> None:
    scores, rng = random_scores(seed), np.random.default_rng(seed)
    rows, classes = rng.permutation(len(scores)), rng.permutation(3)
    plain = estimator.estimate({}, scores, seed=0, bootstrap=0).priors
    turned = estimator.estimate({}, scores[rows][:, classes], seed=0, bootstrap=0).priors
    np.testing.assert_allclose(turned, plain[classes], atol=1e-4)
    assert plain.sum() == pytest.approx(1)
    assert (plain >= 0).all()


def test_calibration_undoes_what_was_done_to_honest_posteriors() -> None:
    rng = np.random.default_rng(0)

    def drawn(c: int) -> np.ndarray:
        x = CENTRES[c] / 3 + rng.normal(size=(400, 3))
        return softmax(-0.5 * ((x[:, None] - CENTRES / 3) ** 2).sum(axis=2), axis=1)

    honest = Sample((0, 1, 2, 3), tuple(drawn(c) for c in range(4)), drawn(0), 4)
    right = fit_calibration("bcts", honest, np.full(4, 0.25))
    shift = np.array([0.5, 0.0, 0.0, -0.5])

    def spoilt(array: np.ndarray) -> np.ndarray:
        return softmax(2 * (np.log(array) - shift), axis=1)

    done = Sample((0, 1, 2, 3), tuple(spoilt(a) for a in honest.positives), spoilt(honest.unlabelled), 4)
    found = fit_calibration("bcts", done, np.full(4, 0.25))
    np.testing.assert_allclose(found(done.unlabelled), right(honest.unlabelled), atol=1e-3)


def test_temperature_is_fitted_on_two_labelled_classes_and_repairs_em() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([-1.0, 0.0, 1.0])
    theta = np.array([0.7, 0.1, 0.2])
    drawn = {c: centres[c] + rng.normal(size=600) for c in range(3)}
    hidden = centres[np.repeat(np.arange(3), (theta * 4000).astype(int))] + rng.normal(size=4000)

    def too_sure(x: np.ndarray) -> np.ndarray:
        return softmax(-4 * 0.5 * (x[:, None] - centres) ** 2, axis=1)

    positives = {c: too_sure(drawn[c]) for c in (0, 2)}
    off, mended = (
        Em(calibration=kind).estimate(positives, too_sure(hidden), seed=0, bootstrap=0).priors - theta
        for kind in ("none", "temperature")
    )
    assert np.abs(mended).max() < 0.5 * np.abs(off).max()


def test_one_labelled_class_leaves_posteriors_as_they_are() -> None:
    sample = Sample((1,), (random_scores(0),), random_scores(1), 3)
    found = fit_calibration("bcts", sample, np.full(3, 1 / 3))
    assert found.temperature == 1.0
    np.testing.assert_allclose(found(sample.unlabelled), sample.unlabelled)


def test_scores_must_be_posteriors_of_all_classes() -> None:
    with pytest.raises(EstimationError, match="sum to 1"):
        Em().estimate({}, 2 * random_scores(0), seed=0)
    with pytest.raises(EstimationError, match="3 columns for 4 classes"):
        Em().estimate({}, random_scores(0), seed=0, classes=4)
    with pytest.raises(EstimationError, match="3 positive shares"):
        Em().estimate({}, random_scores(0), seed=0, training_priors=np.array([0.5, 0.5, 0.0]))
    with pytest.raises(EstimationError, match="3 × 3"):
        Bbse().estimate({}, random_scores(0), seed=0, confusion=np.eye(2))


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    held = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = rng.choice(2, size=200, p=[0.7, 0.3])
        x = np.where(y == 1, 1.5, -1.5) + rng.normal(size=200)
        scores = softmax(np.stack([-0.5 * (x + 1.5) ** 2, -0.5 * (x - 1.5) ** 2], axis=1), axis=1)
        found = Em().estimate({}, scores, seed=seed, bootstrap=40, level=0.9)
        held.append(found.lower[1] <= 0.3 <= found.upper[1])
    assert 0.8 <= np.mean(held) <= 0.98


def test_the_likelihood_grows_from_any_start_to_the_same_maximum() -> None:
    ratios, even = random_scores(5), np.full(40, 1 / 40)
    ends = [
        most_likely(ratios, even, np.array(start), steps=100_000, tolerance=1e-13)
        for start in ([0.8, 0.1, 0.1], [0.1, 0.1, 0.8])
    ]
    np.testing.assert_allclose(*ends, atol=1e-6)
