"""The algebra of the paper holds to rounding with the absolute surrogate, in worlds small enough to enumerate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu.priors import unlabelled_priors
from fedpu.risk import RiskConstants, co_negatives, equations, lent_weights, plain_constants
from risk.world import World, brute_force_lent, mask

TOLERANCE = 1e-9


@st.composite
def worlds_with_split(draw: st.DrawFn) -> tuple[World, set[int]]:
    classes = draw(st.integers(2, 6))
    positive = draw(st.sets(st.integers(0, classes - 1)))
    return World.random(draw(st.integers(0, 10_000)), classes), positive


@st.composite
def worlds_with_clients(draw: st.DrawFn, overlap: bool) -> tuple[World, list[set[int]]]:
    """Positive sets that cover all classes: a random partition of the classes, to which overlap adds at random."""
    classes = draw(st.integers(2, 6))
    clients = draw(st.integers(1, 5))
    owner = draw(st.lists(st.integers(0, clients - 1), min_size=classes, max_size=classes))
    sets = [{c for c in range(classes) if owner[c] == k} for k in range(clients)]
    if overlap:
        sets = [mine | draw(st.sets(st.integers(0, classes - 1))) for mine in sets]
    return World.random(draw(st.integers(0, 10_000)), classes), sets


def case_control(world: World, positive: set[int]) -> RiskConstants:
    return plain_constants(mask(positive, world.classes), torch.tensor(world.priors))


@given(worlds_with_split())
def test_the_risk_is_the_share_of_examples_decided_wrongly(case: tuple[World, set[int]]) -> None:
    world, positive = case
    assert float(equations.risk(case_control(world, positive), world.wrong_matrix())["total"]) == pytest.approx(
        world.true_risk(), abs=TOLERANCE
    )


@given(worlds_with_split())
def test_equ_unlabel_splits_the_unlabelled_risk_into_its_three_parts(case: tuple[World, set[int]]) -> None:
    world, positive = case
    parts = equations.unlabelled_risk(case_control(world, positive), world.wrong_matrix())
    negative = [m for m in range(world.classes) if m not in positive]
    pi, e = world.priors, world.wrong_matrix().numpy()
    assert float(parts["total"]) == pytest.approx(float(world.unlabelled_vector()[negative].sum()), abs=TOLERANCE)
    assert float(parts["positive"]) == pytest.approx(
        sum(pi[i] * e[i, m] for i in positive for m in negative), abs=TOLERANCE
    )
    assert float(parts["negative"]) == pytest.approx(sum(pi[j] * e[j, j] for j in negative), abs=TOLERANCE)
    assert float(parts["between-negative"]) == pytest.approx(
        sum(pi[j] * e[j, m] for j in negative for m in negative if j != m), abs=TOLERANCE
    )


@given(worlds_with_split())
def test_equ_risk_equals_equ_purisk_for_any_split(case: tuple[World, set[int]]) -> None:
    world, positive = case
    terms = equations.pu_risk(case_control(world, positive), world.wrong_matrix(), world.unlabelled_vector())
    assert float(terms["total"]) == pytest.approx(world.true_risk(), abs=TOLERANCE)


@given(worlds_with_split(), st.floats(0.05, 0.95))
def test_equ_risk_equals_equ_purisk_when_labelled_examples_left_the_unlabelled_data(
    case: tuple[World, set[int]], fraction: float
) -> None:
    world, positive = case
    c = np.array([fraction if i in positive else 0.0 for i in range(world.classes)])
    inside = world.priors * (1 - c) / (1 - (world.priors * c).sum())
    share = torch.tensor(1 - (world.priors * c).sum())
    constants = case_control(world, positive)._replace(unlabelled_priors=torch.tensor(inside), unlabelled_share=share)
    terms = equations.pu_risk(constants, world.wrong_matrix(), world.unlabelled_vector(inside))
    assert float(terms["total"]) == pytest.approx(world.true_risk(), abs=TOLERANCE)


def summed(world: World, sets: list[set[int]], mode: str) -> tuple[float, float]:
    """Σ_k equ:fedpurisk and Σ_k equ:fedrisk1 over clients that all hold the same world."""
    positive = torch.stack([mask(s, world.classes) for s in sets])
    matrix = co_negatives(positive)
    e, u = world.wrong_matrix(), world.unlabelled_vector()
    fedpu = fedrisk1 = 0.0
    for k in range(len(sets)):
        constants = case_control(world, sets[k])
        lent = lent_weights(matrix, positive[k], len(sets), mode).double()  # type: ignore[arg-type]
        fedpu += float(equations.fedpu_risk(constants._replace(lent=lent), e, u)["total"])
        fedrisk1 += float(equations.pu_risk(constants, e, u)["total"])
    return fedpu, fedrisk1


@given(worlds_with_clients(overlap=False))
def test_without_overlap_the_printed_term_keeps_the_sum_over_clients(case: tuple[World, list[set[int]]]) -> None:
    fedpu, fedrisk1 = summed(*case, "printed")
    assert fedpu == pytest.approx(fedrisk1, abs=1e-6)  # a_im are float32 counts, exact


@given(worlds_with_clients(overlap=True))
def test_with_any_overlap_the_shared_term_keeps_the_sum_over_clients(case: tuple[World, list[set[int]]]) -> None:
    fedpu, fedrisk1 = summed(*case, "shared")
    assert fedpu == pytest.approx(fedrisk1, abs=1e-5)  # a_im / r_i are float32


def test_with_overlap_the_printed_term_does_not() -> None:
    fedpu, fedrisk1 = summed(World.random(0, 4), [{0, 1}, {1, 2}, {2, 3}], "printed")
    assert abs(fedpu - fedrisk1) > 0.1


def weighted(world: World, sets: list[set[int]], sizes: list[int], counted: bool = True) -> tuple[float, float]:
    """Σ_k (n_k/n) equ:fedpurisk with the shared term and Σ_k (n_k/n) equ:fedrisk1: what the server minimises."""
    positive = torch.stack([mask(s, world.classes) for s in sets])
    matrix = co_negatives(positive, torch.tensor(sizes) if counted else None)
    e, u = world.wrong_matrix(), world.unlabelled_vector()
    fedpu = fedrisk1 = 0.0
    for k, size in enumerate(sizes):
        constants = case_control(world, sets[k])
        lent = lent_weights(matrix, positive[k], len(sets), "shared").double()
        fedpu += size / sum(sizes) * float(equations.fedpu_risk(constants._replace(lent=lent), e, u)["total"])
        fedrisk1 += size / sum(sizes) * float(equations.pu_risk(constants, e, u)["total"])
    return fedpu, fedrisk1


@given(worlds_with_clients(overlap=True), st.data())
def test_the_shared_term_keeps_the_mean_over_clients_of_any_sizes(
    case: tuple[World, list[set[int]]], data: st.DataObject
) -> None:
    world, sets = case
    sizes = data.draw(st.lists(st.integers(1, 1000), min_size=len(sets), max_size=len(sets)))
    fedpu, fedrisk1 = weighted(world, sets, sizes)
    # Lent weights are float32, and a small client that lends for large ones has large ones.
    assert fedpu == pytest.approx(fedrisk1, abs=1e-5 * sum(sizes) / min(sizes))
    assert fedrisk1 == pytest.approx(world.true_risk(), abs=TOLERANCE)


def test_counting_clients_instead_of_their_examples_is_off_where_sizes_differ() -> None:
    world, sets, sizes = World.random(5, 4), [{0, 1}, {2, 3}], [200, 800]
    counted, fedrisk1 = weighted(world, sets, sizes)
    assert counted == pytest.approx(fedrisk1, abs=1e-5)
    assert abs(weighted(world, sets, sizes, counted=False)[0] - fedrisk1) > 0.1


@given(worlds_with_clients(overlap=True), st.integers(1, 10**6))
def test_equal_sizes_change_no_bit_of_the_sum(case: tuple[World, list[set[int]]], size: int) -> None:
    world, sets = case
    positive = torch.stack([mask(s, world.classes) for s in sets])
    assert torch.equal(co_negatives(positive), co_negatives(positive, torch.full((len(sets),), size)))
    negative = (~positive).float()
    assert torch.equal(co_negatives(positive), negative.T @ negative)


@given(worlds_with_clients(overlap=False), st.integers(0, 1000))
def test_where_clients_are_alike_their_unlabelled_terms_cancel(case: tuple[World, list[set[int]]], seed: int) -> None:
    world, sets = case
    other = World(world.counts, World.random(seed, world.classes).logits)  # another classifier on the same data

    def unlabelled(of: World) -> float:
        terms = [
            equations.fedpu_risk(case_control(of, mine), of.wrong_matrix(), of.unlabelled_vector()) for mine in sets
        ]
        return sum(float(term["unlabelled"]) for term in terms)

    expected = (len(sets) - 1) * (world.classes - 1)  # K − 1 clients have a class among their negatives
    assert unlabelled(world) == pytest.approx(expected, abs=TOLERANCE)
    assert unlabelled(other) == pytest.approx(expected, abs=TOLERANCE)


def test_where_clients_hold_different_classes_they_do_not() -> None:
    worlds = [World(np.diag([9, 1]), np.eye(2) * strength) for strength in (0.0, 5.0)]
    sets, shares = [{0}, {1}], [np.array([0.9, 0.1]), np.array([0.1, 0.9])]
    sums = [
        sum(
            float(
                equations.fedpu_risk(case_control(of, mine), of.wrong_matrix(), of.unlabelled_vector(mix))["unlabelled"]
            )
            for mine, mix in zip(sets, shares, strict=True)
        )
        for of in worlds
    ]
    assert abs(sums[0] - sums[1]) > 0.5


@settings(max_examples=50)
@given(worlds_with_clients(overlap=True))
def test_lent_weights_count_the_other_clients_to_which_both_classes_are_negative(
    case: tuple[World, list[set[int]]],
) -> None:
    world, sets = case
    positive = torch.stack([mask(s, world.classes) for s in sets])
    for k in range(len(sets)):
        expected = brute_force_lent(sets, k, world.classes)
        printed = lent_weights(co_negatives(positive), positive[k], len(sets), "printed")
        np.testing.assert_allclose(printed.numpy(), expected)
        labellers = np.array([sum(i in s for s in sets) for i in range(world.classes)])
        shared = lent_weights(co_negatives(positive), positive[k], len(sets), "shared")
        np.testing.assert_allclose(shared.numpy(), expected / labellers[:, None], rtol=1e-6)
        assert not lent_weights(co_negatives(positive), positive[k], len(sets), "off").any()


@given(worlds_with_split(), st.floats(0.05, 0.95))
def test_priors_inside_the_unlabelled_data_follow_from_counts(case: tuple[World, set[int]], fraction: float) -> None:
    world, positive = case
    per_class = world.counts.sum(axis=1) * 100
    labelled = np.array([round(fraction * n) if i in positive else 0 for i, n in enumerate(per_class)])
    inside, share = unlabelled_priors(
        torch.tensor(world.priors), torch.tensor(labelled), torch.tensor(per_class.sum() - labelled.sum()), "censored"
    )
    left = per_class - labelled
    np.testing.assert_allclose(inside.numpy(), left / left.sum(), atol=1e-7)
    assert float(share) == pytest.approx(left.sum() / per_class.sum())
    same, one = unlabelled_priors(torch.tensor(world.priors), torch.tensor(labelled), torch.tensor(7), "case-control")
    assert torch.equal(same, torch.tensor(world.priors))
    assert float(one) == 1
