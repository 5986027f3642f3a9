"""What the paper prints, tried with small numbers: one statement holds, the others fail, and by how much is exact."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu.errors import ConfigError
from fedpu.risk import equations, plain_constants
from fedpu.theory import printed
from risk.world import World, brute_force_lent, mask
from theory.exact import against, bracket, failure

HALF = Fraction(1, 2)


def test_theorem_1_fails_for_a_fixed_classifier_because_the_bracket_has_range_2() -> None:
    # Two classes, the first positive; the classifier takes half of its examples for the other one.
    delta, n = 0.05, 100
    claimed = printed.theorem1(0, [n], 10**6, classes=2, v=0.0, delta=delta)
    assert claimed == pytest.approx(math.sqrt(math.log(20) / 200))
    exceeded = failure(n, [HALF, HALF], bracket(0, [1]), claimed)
    by_hand = sum(Fraction(math.comb(n, wrong), 2**n) for wrong in range(n + 1) if 1 - 2 * wrong / n > claimed)
    assert exceeded == by_hand
    assert float(exceeded) == pytest.approx(0.0967, abs=1e-4)


@pytest.mark.parametrize("v", [0.0, 0.5, 1.0, 1.5])
def test_no_constant_v_mends_theorem_1(v: float) -> None:
    # All n examples are decided for the own class with probability 2^−n, and then the deviation is 1.
    n, delta = 1000, 2.0**-1001
    assert failure(10, [HALF, HALF], bracket(0, [1]), 0.999) == Fraction(1, 2**10)
    claimed = printed.theorem1(0, [n], 10**9, classes=2, v=v, delta=delta)
    assert claimed < 1
    assert Fraction(1, 2**n) > Fraction(delta)


@settings(max_examples=60)
@given(
    st.integers(1, 20),
    st.fractions(0, 1, max_denominator=20),
    st.integers(2, 10),
    st.floats(0.01, 2),
    st.floats(0.001, 0.5),
)
def test_theorem_1_holds_for_a_fixed_classifier_unless_delta_is_below_a_number_that_falls_fast_with_v(
    n: int, right: Fraction, classes: int, v: float, delta: float
) -> None:
    # 2CV/√n makes up for the missing √(log(1/δ) / 2n) as long as log(1/δ) ≤ 8 C² V².
    delta = max(delta, math.exp(-8 * classes**2 * v**2))
    claimed = printed.theorem1(0, [n], 10**9, classes=classes, v=v, delta=delta)
    assert claimed >= math.sqrt(2 * math.log(1 / delta) / n) - 1e-9
    assert failure(n, [right, 1 - right], bracket(0, [1]), claimed) <= Fraction(delta) + Fraction(1, 10**9)


def test_the_example_against_theorem_1_needs_a_small_v() -> None:
    # Ten classes: from V = 0.0612 on, δ = 0.05 is not small enough; with V = 1 it would have to be below 10^−347.
    assert math.sqrt(math.log(20) / 8) / 10 == pytest.approx(0.0612, abs=1e-4)
    assert 8 * 10**2 / math.log(10) == pytest.approx(347.4, abs=0.1)
    claimed = [printed.theorem1(0, [100], 10**6, classes=2, v=v, delta=0.05) for v in (0.0, 0.31)]
    assert [float(failure(100, [HALF, HALF], bracket(0, [1]), c)) > 0.05 for c in claimed] == [True, False]


@settings(max_examples=60)
@given(st.integers(1, 25), st.fractions(0, 1, max_denominator=20), st.sampled_from([0.3, 0.1, 0.01]))
def test_theorem_2_holds_with_any_v(n: int, right: Fraction, delta: float) -> None:
    claimed = printed.theorem2(0, [n], 50, classes=3, v=0.0, delta=delta)
    assert printed.theorem2(0, [n], 50, classes=3, v=0.1, delta=delta) > claimed
    assert failure(n, [right, 1 - right], lambda d: int(d != 0), claimed) <= Fraction(delta)


def sides(client: int, world: World, positive: set[int]) -> tuple[float, float]:
    constants = plain_constants(mask(positive, world.classes), torch.tensor(world.priors))
    left = equations.unlabelled_risk(constants, world.wrong_matrix())["total"]
    return float(left), float(printed.lemma3(client, constants, world.wrong_matrix())["total"])


def test_lemma_3_with_small_numbers() -> None:
    # Three classes of one example each, decided rightly; client 1 labels class 1. Its weight is |1−2|·|1−3| / 1² = 2.
    assert printed.lemma3_weight(1, [2, 3]) == 2
    constants = plain_constants(mask({0}, 3), torch.full((3,), 1 / 3).double())
    wrong = 1 - torch.eye(3).double()
    # Σ_{m∈{2,3}} E_U[ℓ_m] = (2 + 1 + 1)/3; printed: 2 · ⅓ · ⅔ + ⅓ · 4/3 = 8/9.
    assert float(equations.unlabelled_risk(constants, wrong)["total"]) == pytest.approx(4 / 3)
    assert float(printed.lemma3(1, constants, wrong)["total"]) == pytest.approx(8 / 9)
    # The same client under the number 2 or 3, which is a negative class of it: nothing is left of the lemma.
    assert float(printed.lemma3(2, constants, wrong)["total"]) == pytest.approx(4 / 3)
    # And under number 4, with the same data and the same classifier: |4−2|·|4−3| / 4² = ⅛.
    assert float(printed.lemma3(4, constants, wrong)["total"]) == pytest.approx(4 / 3 - (1 / 9) * (2 / 3))
    with pytest.raises(ConfigError, match="numbered from 1"):
        printed.lemma3_weight(0, [2])


@settings(max_examples=50)
@given(st.integers(0, 1000), st.integers(2, 6), st.integers(1, 8), st.data())
def test_lemma_3_is_off_by_the_risk_on_the_hidden_negatives(
    seed: int, classes: int, client: int, data: st.DataObject
) -> None:
    world = World.random(seed, classes)
    positive = data.draw(st.sets(st.integers(0, classes - 1), max_size=classes - 1))
    negative = [m for m in range(classes) if m not in positive]
    left, right = sides(client, world, positive)
    weight = float(printed.lemma3_weight(client, [m + 1 for m in negative]))
    e = world.wrong_matrix().numpy()
    hidden = sum(world.priors[j] * e[j, m] for j in negative for m in negative)
    assert left - right == pytest.approx(weight / (1 + weight) * hidden, abs=1e-9)


@pytest.mark.parametrize("v", [0.0, 1.0, 10.0])
def test_theorem_4_fails_nearly_always_with_enough_data(v: float) -> None:
    # The world of the lemma, in its limit: E_U = 4/3 and the mean over U, a third of it after division by 1 + r = 3.
    weight = float(printed.lemma3_weight(1, [2, 3]))
    n = 10**9
    claimed = printed.theorem4(weight, [1 / 3], [2.0], [n], n, classes=3, v=v, delta=0.05)
    assert claimed < 2 / 3 + 0.01 < 4 / 3 - 4 / 9


def test_theorem_4_fails_by_enumeration() -> None:
    # 60 unlabelled examples, a third of them positive: Σ_{m∈N} ℓ_m is 2 on positives and 1 on negatives.
    n, delta, weight = 60, 0.05, 2.0
    claimed = printed.theorem4(weight, [1 / 3], [2.0], [10**6], n, classes=3, v=0.0, delta=delta)
    chances = [Fraction(1, 3), Fraction(2, 3)]
    loss = against([1, 2])
    # E − mean/3 > claimed, written as 3E − mean > 3·claimed and shifted by 2E.
    exceeded = failure(n, chances, loss, 3 * claimed - 2 * 4 / 3)
    assert exceeded > 0.99


@pytest.mark.parametrize(
    ("labelled", "v", "fails"),
    [
        (20, 0.0, 0.0),
        (60, 0.0, 0.0),
        (200, 0.0, 0.107),
        (400, 0.0, 0.560),
        (10**4, 0.0, 0.994),
        (10**6, 0.1, 0.664),
        (10**6, 0.2, 0.017),
    ],
)
def test_the_example_against_theorem_4_needs_many_labelled_examples_and_a_small_v(
    labelled: int, v: float, fails: float
) -> None:
    claimed = printed.theorem4(2.0, [1 / 3], [2.0], [labelled], 60, classes=3, v=v, delta=0.05)
    exceeded = failure(60, [Fraction(1, 3), Fraction(2, 3)], against([1, 2]), 3 * claimed - 2 * 4 / 3)
    assert float(exceeded) == pytest.approx(fails, abs=1e-3)


@pytest.mark.parametrize(("v", "too_few", "enough"), [(0.1, 100, 1000), (1.0, 1000, 10**4), (10.0, 10**5, 10**6)])
def test_a_larger_v_puts_off_the_failure_of_theorem_4(v: float, too_few: int, enough: int) -> None:
    # The left-hand side tends to 8/9; both counts are n.
    claimed = [printed.theorem4(2.0, [1 / 3], [2.0], [n], n, classes=3, v=v, delta=0.05) for n in (too_few, enough)]
    assert claimed[0] > 8 / 9 > claimed[1]


def balanced(classes: int, positive: int, fraction: float, per_class: int = 1000) -> tuple[torch.Tensor, ...]:
    chosen = mask(set(range(positive)), classes)[None]
    labelled = torch.where(chosen, round(per_class * fraction), 0)
    return chosen, labelled, classes * per_class - labelled.sum(dim=1)


def order_ratio(chosen: torch.Tensor, labelled: torch.Tensor, unlabelled: torch.Tensor) -> float:
    examples = labelled.sum(dim=1) + unlabelled
    classes = chosen.shape[1]
    return float(printed.theorem5(chosen, labelled, unlabelled) / printed.supervised_order(examples, classes))


def test_the_ratio_of_the_printed_orders_exceeds_the_claim_in_a_row_of_the_papers_own_table() -> None:
    # MNIST, two clients with nine positive classes each, half of them labelled.
    ratio = order_ratio(*balanced(10, 9, 0.5))
    assert ratio == pytest.approx((9 * math.sqrt(2) + 1 / math.sqrt(5.5)) * math.sqrt(10))
    assert ratio > 1.3 * printed.ratio_to_clients(10)
    # With one positive class it is well below; with few labels it has no bound.
    assert order_ratio(*balanced(10, 1, 0.5)) < printed.ratio_to_clients(10)
    assert order_ratio(*balanced(10, 1, 0.005)) > printed.ratio_to_clients(10)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.integers(1, 10**6))
def test_the_ratio_is_smallest_when_all_samples_are_equal(labelled: list[int], unlabelled: int) -> None:
    groups = len(labelled) + 1
    positive = mask(set(range(groups - 1)), groups)[None]
    ratio = order_ratio(positive, torch.tensor([[*labelled, 0]]), torch.tensor([unlabelled]))
    assert ratio >= printed.ratio_to_clients(groups) * (1 - 1e-9)
    equal = torch.where(positive, unlabelled, 0)
    assert order_ratio(positive, equal, torch.tensor([unlabelled])) == pytest.approx(printed.ratio_to_clients(groups))


def test_the_pooled_ratio_is_the_claim_when_all_samples_of_all_clients_are_equal() -> None:
    clients, classes = 3, 4
    positive = mask({0, 1, 2}, classes).expand(clients, classes)
    labelled, unlabelled = torch.where(positive, 50, 0), torch.full((clients,), 50)
    total = printed.theorem5(positive, labelled, unlabelled).sum()
    pooled = printed.supervised_order(torch.tensor(clients * 4 * 50), classes)
    assert float(total / pooled) == pytest.approx(printed.ratio_to_pooled(classes, clients))


def test_the_order_of_theorem_5_lacks_the_number_of_clients() -> None:
    # Three classes, each labelled by r clients. The data of one client and their order stay; its risk's spread grows.
    n, prior = 100, 1 / 3
    spreads = []
    for r in (1, 10, 100):
        lent = brute_force_lent([{c} for c in range(3) for _ in range(r)], 0, 3)
        # Labelled examples of class 0, half of them decided for class 1: what an example adds, by decision.
        adds = prior * (np.array([-1.0, 1.0, 1.0]) + lent[0]) / n
        spreads.append(math.sqrt(n) * abs(adds[1] - adds[0]) / 2)
    order = float(printed.theorem5(mask({0}, 3)[None], torch.tensor([[n, 0, 0]]), torch.tensor([n])).sum())
    assert np.diff(spreads) == pytest.approx([prior * 9 / 2 / 10, prior * 90 / 2 / 10])
    assert spreads[-1] > 0.9 * order
