"""penalized-l1, pe and km, against literal small optimisation problems and the paper's own world."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize

from fedpu.priors.estimators import Km, Pe, PenalizedL1
from fedpu.priors.estimators.base import Sample
from fedpu.priors.estimators.features import distances_to_drawn, reduced
from fedpu.priors.estimators.km import Curve, kernels_by_distance
from fedpu.priors.estimators.pe import least_squares
from fedpu.priors.estimators.penalized_l1 import beta, joint_minimiser
from fedpu.priors.estimators.simplex import nearest_mixture, project


def best_shares(value, count: int, *, at_most: bool) -> np.ndarray:
    """The minimum over shares as scipy finds it."""
    found = minimize(
        value,
        np.full(count, 1 / (count + at_most)),
        method="SLSQP",
        bounds=[(0, 1)] * count,
        constraints=[LinearConstraint(np.ones((1, count)), 0 if at_most else 1, 1)],
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    return found.x


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6), st.booleans(), st.integers(0, 1000))
def test_projection_is_the_nearest_point(point: list[float], at_most: bool, seed: int) -> None:
    x = np.array(point)
    found = project(x, at_most=at_most)
    assert (found >= 0).all()
    assert found.sum() <= 1 + 1e-9
    if not at_most:
        assert found.sum() == pytest.approx(1)
    for other in np.random.default_rng(seed).dirichlet(np.ones(len(x)), size=20):
        assert ((found - x) ** 2).sum() <= ((other - x) ** 2).sum() + 1e-9


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.001, 1))
def test_the_closed_form_of_penalised_l1_is_the_solution_of_its_quadratic_program(seed: int, penalty: float) -> None:
    """min over α ≥ 0 of λ/2 ‖α‖² − αᵀβ, then penL1(θ) = αᵀβ − θ + 1."""
    means = np.random.default_rng(seed).uniform(size=(2, 6))
    theta = np.array([[0.4]])
    b = beta(theta, means)[0]
    solved = minimize(
        lambda a: penalty / 2 * (a**2).sum() - a @ b,
        np.ones(6),
        jac=lambda a: penalty * a - b,
        bounds=[(0, None)] * 6,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10},
    ).x
    np.testing.assert_allclose(solved, np.maximum(b, 0) / penalty, rtol=1e-4, atol=1e-6)
    assert solved @ b == pytest.approx((np.maximum(b, 0) ** 2).sum() / penalty, rel=1e-4, abs=1e-8)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 3), st.sampled_from([0.003, 0.05, 1.0]))
def test_several_classes_are_matched_jointly_at_the_minimum(seed: int, classes: int, penalty: float) -> None:
    means = np.random.default_rng(seed).uniform(size=(classes + 1, 8)) ** 2

    def value(theta: np.ndarray) -> float:
        return float((np.maximum(beta(theta[None], means), 0) ** 2).sum() / penalty - theta.sum())

    found = joint_minimiser(means[:-1], means[-1], penalty)
    assert value(found) <= value(best_shares(value, classes, at_most=True)) + 1e-6


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_pearson_is_minimised_over_shares(seed: int, classes: int) -> None:
    root = np.random.default_rng(seed).normal(size=(classes, classes + 2))
    products = root @ root.T + 0.1 * np.eye(classes)
    found = least_squares(products)
    expected = best_shares(lambda t: 0.5 * t @ products @ t - t.sum(), classes, at_most=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    if classes == 1:
        assert found[0] == pytest.approx(min(1 / products[0, 0], 1), abs=1e-9)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(0.05, 0.9))
def test_the_nearest_mixture_and_the_slope_are_those_of_the_quadratic_program(seed: int, theta: float) -> None:
    rng = np.random.default_rng(seed)
    p, u = rng.normal(size=(5, 2)), rng.normal(size=(7, 2)) + 1
    kernel = next(kernels_by_distance(p, u, (1.0,)))
    curve = Curve(kernel, np.full(5, 1 / 5), np.full(7, 1 / 7))
    everyone = np.ones(12, dtype=bool)
    stretch = 1 / (1 - theta)
    point = np.concatenate([np.full(5, (1 - stretch) / 5), np.full(7, stretch / 7)])
    expected = best_shares(lambda v: 100 * (point - v) @ kernel @ (point - v), 12, at_most=False)
    ours = nearest_mixture(kernel, point, everyone)
    assert ours.sum() == pytest.approx(1)
    assert (ours >= 0).all()
    difference, reference = point - ours, point - expected
    assert difference @ kernel @ difference <= reference @ kernel @ reference + 1e-7
    distance, slope, _ = curve.at(theta, everyone)
    h = 1e-4
    ahead, behind = (curve.at(1 - 1 / (stretch + step), everyone)[0] for step in (h, -h))
    assert distance == pytest.approx(np.sqrt(difference @ kernel @ difference))
    assert slope == pytest.approx((ahead - behind) / (2 * h), abs=1e-3)


def uniform_world(overlap: float, seed: int) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """The paper's: p(x | +) = U(0, 1), p(x | −) = U(1 − γ, 2 − γ), prior .7."""
    rng = np.random.default_rng(seed)
    positives, hidden = rng.uniform(0, 1, size=(300, 1)), rng.uniform(0, 1, size=(210, 1))
    return {0: positives}, np.concatenate([hidden, rng.uniform(1 - overlap, 2 - overlap, size=(90, 1))])


def test_overlap_fools_pearson_and_not_penalised_l1() -> None:
    """The paper's figure with γ = .75."""
    off = {
        estimator.name: np.mean(
            [
                estimator.estimate(*uniform_world(0.75, seed), seed=seed, bootstrap=0).priors[0] - 0.7
                for seed in range(5)
            ]
        )
        for estimator in (Pe(), PenalizedL1())
    }
    assert off["pe"] > 0.15
    assert abs(off["penalized-l1"]) < 0.6 * off["pe"]


@pytest.mark.parametrize("variant", ["km1", "km2"])
def test_km_takes_out_of_u_what_looks_like_the_positives(variant: Literal["km1", "km2"]) -> None:
    """Normal clouds two apart, 40 per cent of U being positive."""
    rng = np.random.default_rng(1)
    positives = rng.normal(size=(200, 2)) + 2
    unlabelled = np.concatenate([rng.normal(size=(80, 2)) + 2, rng.normal(size=(120, 2))])
    found = Km(variant=variant).estimate({0: positives}, unlabelled, seed=0, bootstrap=0)
    assert found.priors[0] == pytest.approx(0.4, abs=0.07)


def test_a_kernel_that_sees_every_example_alone_is_passed_over() -> None:
    rng = np.random.default_rng(0)
    positives, unlabelled = rng.normal(size=(60, 3)), rng.normal(size=(60, 3))
    found = Km(widths=(0.01, 1.0)).estimate({0: positives}, unlabelled, seed=0, bootstrap=0)
    assert found.priors[0] > 0.5


def test_a_centre_does_not_count_itself() -> None:
    rng = np.random.default_rng(0)
    first, second = distances_to_drawn([rng.normal(size=(6, 2)), rng.normal(size=(9, 2))], 5, rng)
    assert first.shape == (6, 5)
    assert second.shape == (9, 5)
    assert np.isinf(np.concatenate([first, second])).sum(axis=0).tolist() == [1] * 5
    assert (np.concatenate([first, second]) > 0).all()


def test_principal_components_are_those_with_the_largest_spread() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(100, 5)) * np.array([1, 10, 1, 5, 1])
    found = reduced(Sample((0,), (values[:40],), values[40:], 1), 2)
    _, singular, _ = np.linalg.svd(values - values.mean(axis=0))
    kept = np.concatenate([*found.positives, found.unlabelled])
    np.testing.assert_allclose(np.sort((kept**2).sum(axis=0))[::-1], singular[:2] ** 2)
