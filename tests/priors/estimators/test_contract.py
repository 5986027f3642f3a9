"""What every estimator must do, whichever it is."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from fedpu.errors import EstimationError
from fedpu.priors.estimators import ESTIMATORS, Estimate, Estimator, Pe
from priors.estimators.worlds import Blobs, blobs

THETA = [0.3, 0.2, 0.0, 0.5]


def run(estimator: Estimator, world: Blobs, *, seed: int = 0, bootstrap: int = 10) -> Estimate:
    positives, unlabelled = world.scores if estimator.needs == "scores" else (world.positives, world.unlabelled)
    return estimator.estimate(positives, unlabelled, seed=seed, classes=4, bootstrap=bootstrap)


@pytest.fixture(scope="module")
def world() -> Blobs:
    return blobs(THETA, (0, 1), 150, 300, seed=0)


QUICK: dict[str, dict[str, object]] = {
    "penalized-l1": {"centres": 300, "widths": (0.05, 0.1, 0.2, 0.4, 0.8), "penalties": (0.001, 0.1, 10.0)},
    "pe": {"centres": 80, "widths": (0.3, 1.0), "folds": 3},
    "km": {"points": 150},
    "bbe": {"folds": 2, "hidden": 50, "steps": 150},
    "elkan-noto": {"folds": 2, "classifier": "logistic", "strength": 10.0},
}
"""settings under which an estimator is fast on few examples; one that is not named here has its defaults"""


def quick(name: str, **settings: object) -> Estimator:
    return ESTIMATORS[name](**(QUICK.get(name, {}) | settings))


EVERY = [
    *[quick(name) for name in ESTIMATORS],
    quick("km", variant="km2"),
    quick("bbe", classifier="logistic"),
    quick("bbe", classifier="trees"),
    quick("elkan-noto", variant="e2"),
    quick("bbse", predictions="hard"),
    quick("em", calibration="temperature"),
    quick("em", calibration="bcts"),
]


@pytest.mark.parametrize("estimator", EVERY, ids=lambda e: repr(e)[:60])
def test_classes_that_lie_apart_are_found_with_their_intervals(estimator: Estimator, world: Blobs) -> None:
    found = run(estimator, world)
    np.testing.assert_allclose(found.priors[[0, 1]], THETA[:2], atol=0.12)
    assert found.negative == pytest.approx(1 - found.priors[[0, 1]].sum(), abs=1e-9)
    known = np.isfinite(found.priors)
    assert known.all() if estimator.needs == "scores" else known.tolist() == [True, True, False, False]
    assert (found.lower[known] <= found.priors[known] + 1e-12).all()
    assert (found.priors[known] <= found.upper[known] + 1e-12).all()
    assert 0 <= found.negative_lower <= found.negative <= found.negative_upper <= 1
    assert (found.priors[known] >= 0).all()
    assert found.priors[known].sum() <= 1 + 1e-9


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_the_same_seed_gives_the_same_bits_and_the_bootstrap_leaves_the_estimate(name: str, world: Blobs) -> None:
    estimator = quick(name)
    one, two, without = run(estimator, world), run(estimator, world), run(estimator, world, bootstrap=0)
    for field in ("priors", "lower", "upper"):
        assert getattr(one, field).tobytes() == getattr(two, field).tobytes()
    assert one.priors.tobytes() == without.priors.tobytes()
    assert np.isnan(without.lower).all()
    assert np.isnan(without.negative_upper)


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_the_order_in_which_classes_are_handed_over_does_not_matter(name: str, world: Blobs) -> None:
    turned = Blobs({c: world.positives[c] for c in (1, 0)}, world.unlabelled)
    one, two = (run(quick(name), w, bootstrap=0) for w in (world, turned))
    np.testing.assert_array_equal(one.priors, two.priors)


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_an_estimator_is_handed_examples_and_no_labels_of_u(name: str) -> None:
    parameters = set(inspect.signature(ESTIMATORS[name].estimate).parameters)
    known = {"self", "positives", "unlabelled", "seed", "classes", "bootstrap", "level", "training_priors", "confusion"}
    assert parameters <= known


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_what_can_not_be_estimated_from_is_refused_in_a_sentence(name: str, world: Blobs) -> None:
    estimator = ESTIMATORS[name]()
    positives, unlabelled = world.scores if estimator.needs == "scores" else (world.positives, world.unlabelled)

    def refused(message: str, p: dict[int, np.ndarray], u: np.ndarray) -> None:
        with pytest.raises(EstimationError, match=message) as caught:
            estimator.estimate(p, u, seed=0, bootstrap=0)
        assert str(caught.value).endswith(".")

    nan = positives[0].copy()
    nan[3, 1] = np.nan
    infinite = unlabelled.copy()
    infinite[7, 0] = np.inf
    constant = np.tile(unlabelled[:1], (50, 1))
    if estimator.positives_needed:
        refused("needs labelled positives", {}, unlabelled)
    refused("too few of the positives of class 1: none", {0: positives[0], 1: positives[1][:0]}, unlabelled)
    refused("too few of the unlabelled data: none", positives, unlabelled[:0])
    refused(r"positives of class 0 hold NaN.*row 3", {0: nan}, unlabelled)
    refused(r"unlabelled data hold NaN or infinite.*row 7", positives, infinite)
    refused("constant", {0: constant}, constant)
    refused(r"features and the unlabelled data|columns", {0: positives[0][:, :-1]}, unlabelled)
    refused("one example per row", {0: positives[0][:, 0]}, unlabelled)


def test_settings_of_the_interval_are_checked(world: Blobs) -> None:
    with pytest.raises(EstimationError, match="0 < level < 1"):
        Pe().estimate(world.positives, world.unlabelled, seed=0, level=1.5)
    with pytest.raises(EstimationError, match="numbered 0 … 0"):
        Pe().estimate(world.positives, world.unlabelled, seed=0, classes=1)


@pytest.mark.parametrize("estimator", ["penalized-l1", "pe", "km", "bbe"])
def test_three_positive_classes_that_are_all_there_is_sum_to_at_most_one(estimator: str) -> None:
    found = run(quick(estimator), blobs([0.5, 0.3, 0.2, 0.0], (0, 1, 2), 200, 500, seed=0), bootstrap=0)
    np.testing.assert_allclose(found.priors[:3], [0.5, 0.3, 0.2], atol=0.15)
    assert found.priors[:3].sum() <= 1 + 1e-9


@pytest.mark.parametrize("name", ["penalized-l1", "pe", "km"])
def test_features_that_are_mostly_alike_are_no_obstacle(name: str) -> None:
    """Two thirds of U and all positives are one and the same example."""
    same, other = np.zeros((60, 2)), np.ones((30, 2))
    found = quick(name).estimate({0: same}, np.concatenate([same, other]), seed=0, bootstrap=5)
    assert 0 <= found.priors[0] <= 1
