"""What is put in place of the printed statements holds: by enumeration, and in its limits."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu import theory
from fedpu.errors import ConfigError
from fedpu.risk import equations, plain_constants
from risk.world import World, mask
from theory.exact import against, bracket, failure

DELTAS = st.sampled_from([0.5, 0.2, 0.05, 0.001])


@st.composite
def chances(draw: st.DrawFn, classes: int) -> list[Fraction]:
    parts = draw(st.lists(st.integers(0, 6), min_size=classes, max_size=classes).filter(any))
    return [Fraction(part, sum(parts)) for part in parts]


@settings(max_examples=80)
@given(st.integers(1, 12), chances(4), DELTAS, st.sets(st.integers(1, 3)))
def test_theorem_1_holds_for_a_fixed_classifier(n: int, q: list[Fraction], delta: float, negative: set[int]) -> None:
    positive = mask(set(range(4)) - negative, 4)
    bound = theory.theorem1(positive, 0, n, delta)
    assert bound == pytest.approx((2 if negative else 1) * math.sqrt(math.log(1 / delta) / (2 * n)))
    assert failure(n, q, bracket(0, sorted(negative)), bound) <= Fraction(delta)


@settings(max_examples=40)
@given(st.integers(1, 12), chances(3), DELTAS)
def test_theorem_2_holds_in_both_directions(n: int, q: list[Fraction], delta: float) -> None:
    bound = theory.theorem2(n, delta)
    assert failure(n, q, lambda d: int(d != 2), bound) <= Fraction(delta)
    assert failure(n, q, lambda d: -int(d != 2), bound) <= Fraction(delta)


@settings(max_examples=40)
@given(st.integers(1, 12), chances(4), DELTAS, st.sets(st.integers(0, 3)))
def test_theorem_4_holds_without_labelled_data(n: int, q: list[Fraction], delta: float, negative: set[int]) -> None:
    bound = theory.theorem4(mask(set(range(4)) - negative, 4), n, delta)
    assert failure(n, q, against(sorted(negative)), bound) <= Fraction(delta)
    # No class, or every class, is negative: Σ_{m∈N} ℓ_m is the same whatever is decided.
    assert (bound == 0) == (len(negative) in (0, 4))


@settings(max_examples=50)
@given(st.integers(0, 1000), st.integers(2, 6), st.data())
def test_lemma_3_holds_with_a_weight_for_each_class(seed: int, classes: int, data: st.DataObject) -> None:
    world = World.random(seed, classes)
    positive = data.draw(st.sets(st.integers(0, classes - 1)))
    constants = plain_constants(mask(positive, classes), torch.tensor(world.priors))
    drawn = data.draw(st.lists(st.floats(0, 100), min_size=classes, max_size=classes))
    weights = torch.where(constants.positive, torch.tensor(drawn).double(), 0)
    left = equations.unlabelled_risk(constants, world.wrong_matrix())["total"]
    assert float(theory.lemma3(constants, world.wrong_matrix(), weights)["total"]) == pytest.approx(
        float(left), abs=1e-9
    )


def test_lemma_3_refuses_weights_on_negative_classes() -> None:
    constants = plain_constants(mask({0}, 2), torch.tensor([0.5, 0.5]).double())
    with pytest.raises(ConfigError, match="zero for negative classes"):
        theory.lemma3(constants, 1 - torch.eye(2).double(), torch.tensor([1.0, 1.0]).double())


@settings(max_examples=60)
@given(st.integers(1, 10**6), st.integers(1, 1000), st.floats(0.001, 0.9), st.floats(0, 5), st.sets(st.integers(1, 4)))
def test_bounds_fall_with_n_rise_with_certainty_and_with_v(
    n: int, more: int, delta: float, v: float, negative: set[int]
) -> None:
    positive = mask(set(range(5)) - negative, 5)

    def every(count: int, probability: float, constant: float) -> np.ndarray:
        first = theory.theorem1(positive, 0, count, probability, constant)
        last = theory.theorem4(positive, count, probability, constant)
        return np.array([first, theory.theorem2(count, probability, constant), last])

    here = every(n, delta, v)
    assert (every(n + more, delta, v) <= here).all()
    assert (every(n, delta / 2, v) >= here).all()
    assert (every(n, delta, v + 1) >= here).all()
    assert every(4 * n, delta, v) == pytest.approx(here / 2)
    assert (every(10**14, delta, v) < 1e-4).all()


def test_mcdiarmid_counts_what_the_decisions_can_change() -> None:
    # The complexity of a bracket is that of its decisions, each as often as its weight differs from the commonest one.
    positive = mask({0, 1}, 5)
    assert theory.theorem1(positive, 0, 1, delta=0.999999, v=1.0) == pytest.approx(2 * 3, abs=0.01)
    assert theory.theorem4(positive, 1, delta=0.999999, v=1.0) == pytest.approx(2 * 2, abs=0.01)
    assert theory.theorem2(1, delta=0.999999, v=1.0) == pytest.approx(2 * 1, abs=0.01)


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_v_from_the_vc_dimension_is_above_the_exact_rademacher_complexity_of_thresholds(n: int) -> None:
    # Thresholds on a line have VC dimension 1; the supremum over them is the largest suffix sum.
    exact = np.mean([max(0, *np.cumsum(signs)) / n for signs in itertools.product((-1, 1), repeat=n)])
    assert exact <= theory.vc_constant(1, n) / math.sqrt(n)
    # All sets have VC dimension n: the supremum is the share of pluses.
    assert theory.vc_constant(n, n) / math.sqrt(n) >= 0.5
    assert theory.vc_constant(10 * n, n) / math.sqrt(n) >= 0.5
    assert theory.vc_constant(0, n) == 0


def test_the_bound_holds_for_the_worst_of_all_thresholds() -> None:
    # Class 0 lies on 0 … 19; a classifier decides for class 1 from its threshold on. Class 1 is negative.
    rng, n, delta, draws = np.random.default_rng(0), 50, 0.1, 2000
    points = rng.integers(0, 20, (draws, n))
    thresholds = np.arange(21)
    beyond = points[:, :, None] >= thresholds
    expected = (20 - thresholds) / 20
    # ℓ_0 − ℓ_1 is +1 when decided for class 1, and −1 otherwise.
    deviation = (2 * expected - 2 * beyond.mean(axis=1)).max(axis=1)
    positive = mask({0}, 2)
    bound = theory.theorem1(positive, 0, n, delta, theory.vc_constant(1, n))
    assert (deviation > bound).mean() <= delta
    assert deviation.max() > bound / 5


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, 2.0, float("nan")])
def test_delta_must_be_a_probability(delta: float) -> None:
    with pytest.raises(ConfigError, match="it is a probability"):
        theory.theorem2(10, delta)
    with pytest.raises(ConfigError, match="VC dimension of -1"):
        theory.vc_constant(-1, 10)
