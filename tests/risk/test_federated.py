"""The trainable risk: equal to the paper's with the absolute surrogate, and to a loop over examples with the others."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedpu.risk.federated as federated_module
from fedpu.errors import ConfigError
from fedpu.risk import (
    SURROGATES,
    FedPULoss,
    RiskConstants,
    conventional_pu_risk,
    equations,
    fedpu_risk,
    nnpu_risk,
    plain_constants,
    released_older_risk,
    released_risk,
    upu_risk,
)
from risk.world import EPSILON, World, brute_force_lent, mask


def random_case(seed: int, classes: int = 5, n: int = 40) -> tuple[torch.Tensor, torch.Tensor, RiskConstants]:
    """A censored client with two positive classes and a lent term, in float64."""
    rng = np.random.default_rng(seed)
    positive = set(rng.permutation(classes)[:2].tolist())
    sets = [positive, {0, 1}, {2, 3}, {classes - 1}]
    labels = [int(rng.choice([-1, *sorted(positive)])) for _ in range(n)]
    priors = torch.tensor(rng.dirichlet(np.ones(classes)))
    constants = RiskConstants(
        positive=mask(positive, classes),
        priors=priors,
        unlabelled_priors=torch.tensor(rng.dirichlet(np.ones(classes))),
        unlabelled_share=torch.tensor(0.8).double(),
        lent=torch.tensor(brute_force_lent(sets, 0, classes)),
        shares=torch.zeros(classes + 1).double(),
    )
    return torch.tensor(rng.normal(0, 2, (n, classes))), torch.tensor(labels), constants


def by_loop(logits: torch.Tensor, labels: torch.Tensor, constants: RiskConstants, surrogate: str) -> dict[str, float]:
    """The same risk from its definition: sums over examples and classes, nothing vectorised."""
    classes = logits.shape[1]
    positive = [c for c in range(classes) if constants.positive[c]]
    negative = [c for c in range(classes) if not constants.positive[c]]

    def losses(row: list[float]) -> tuple[list[float], list[float]]:
        top = max(row)
        e = [math.exp(z - top) for z in row]
        p = [v / sum(e) for v in e]
        if surrogate == "absolute":
            return [1 - v for v in p], p
        if surrogate == "log":
            return [-math.log(v) for v in p], [-math.log(1 - v + EPSILON) for v in p]
        return [1 / (1 + math.exp(z)) for z in row], [1 / (1 + math.exp(-z)) for z in row]

    pairs = [losses(row) for row in logits.tolist()]
    of_class = {i: [pair for pair, y in zip(pairs, labels.tolist(), strict=True) if y == i] for i in positive}
    unlabelled = [pair for pair, y in zip(pairs, labels.tolist(), strict=True) if y == -1]

    def mean(group: list, value) -> float:  # type: ignore[no-untyped-def]
        return sum(value(w, r) for w, r in group) / len(group) if group else 0.0

    def negatives(w: list[float], r: list[float]) -> float:
        return len(negative) - 1 + sum(r[i] for i in positive)

    share, pi, inside = (
        float(constants.unlabelled_share),
        constants.priors.tolist(),
        constants.unlabelled_priors.tolist(),
    )
    terms = {
        "positive": sum(pi[i] * mean(of_class[i], lambda w, r, i=i: w[i]) for i in positive),
        "against-negative": -share * sum(inside[i] * mean(of_class[i], negatives) for i in positive),
        "unlabelled": share * mean(unlabelled, negatives),
        "lent": sum(
            pi[i] * float(constants.lent[i, m]) * mean(of_class[i], lambda w, r, m=m: r[m] - 1)
            for i in positive
            for m in range(classes)
        ),
    }
    present = sum(inside[i] for i in positive if of_class[i])
    floor = (len(negative) - 1) * share * (bool(unlabelled) - present)
    terms["clamp"] = max(0.0, floor - terms["unlabelled"] - terms["against-negative"])
    return terms | {"total": sum(terms.values())}


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from(["absolute", "log", "sigmoid"]))
def test_every_term_equals_a_loop_over_the_examples(seed: int, surrogate: str) -> None:
    logits, labels, constants = random_case(seed)
    terms = fedpu_risk(logits, labels, constants, surrogate=surrogate, clamp="max")
    expected = by_loop(logits, labels, constants, surrogate)
    assert terms.keys() == expected.keys()
    for name, value in expected.items():
        assert float(terms[name]) == pytest.approx(value, abs=1e-9), name


@given(st.integers(0, 10_000), st.integers(2, 6), st.data())
def test_with_the_absolute_surrogate_it_is_the_papers_risk(seed: int, classes: int, data: st.DataObject) -> None:
    world = World.random(seed, classes)
    positive = data.draw(st.sets(st.integers(0, classes - 1), min_size=1))
    lent = torch.tensor(brute_force_lent([positive, {0}, set()], 0, classes))
    constants = plain_constants(mask(positive, classes), torch.tensor(world.priors), lent)
    logits, labels = world.batch(positive)
    terms = fedpu_risk(logits, labels, constants, surrogate="absolute", clamp="off")
    expected = equations.fedpu_risk(constants, world.wrong_matrix(), world.unlabelled_vector())
    for name in ("positive", "against-negative", "unlabelled", "lent", "total"):
        assert float(terms[name]) == pytest.approx(float(expected[name]), abs=1e-9), name


@given(st.integers(0, 1000), st.integers(1, 40))
def test_unbiased_expectations_over_an_epoch_average_to_those_over_all_data(seed: int, size: int) -> None:
    logits, labels, constants = random_case(seed)
    counts = torch.bincount(torch.where(labels < 0, 5, labels), minlength=6)
    unbiased = constants._replace(shares=counts.double() / len(labels))
    for risk in (fedpu_risk, conventional_pu_risk):
        whole = risk(logits, labels, constants, clamp="off")
        batches = [
            (len(y) / len(labels), risk(z, y, unbiased, clamp="off"))
            for z, y in zip(logits.split(size), labels.split(size), strict=True)
        ]
        for name, value in whole.items():
            assert sum(share * float(terms[name]) for share, terms in batches) == pytest.approx(float(value), abs=1e-9)


@pytest.mark.parametrize("surrogate", list(SURROGATES))
@pytest.mark.parametrize("clamp", ["max", "reverse", "off"])
def test_gradients_agree_with_finite_differences(surrogate: str, clamp: str) -> None:
    for seed in range(3):
        logits, labels, constants = random_case(seed, n=15)
        logits.requires_grad_()
        risk = lambda z: fedpu_risk(z, labels, constants, surrogate=surrogate, clamp=clamp, cross_entropy=0.3)["total"]  # noqa: B023, E731
        assert torch.autograd.gradcheck(risk, logits)


@pytest.mark.parametrize("risk", [released_risk, released_older_risk, conventional_pu_risk])
def test_gradients_of_the_other_risks_agree_with_finite_differences(risk) -> None:  # type: ignore[no-untyped-def]
    for seed in range(3):
        logits, labels, constants = random_case(seed, n=15)
        logits.requires_grad_()
        assert torch.autograd.gradcheck(lambda z: risk(z, labels, constants)["total"], logits)  # noqa: B023


def confident(labels: torch.Tensor, classes: int) -> torch.Tensor:
    """Logits that put labelled examples into class 0 softly, and unlabelled ones far away from it."""
    logits = torch.zeros(len(labels), classes, dtype=torch.float64)
    logits[labels == 0, 0] = 1.0
    logits[labels < 0, 0] = -9.0
    return logits


@pytest.mark.parametrize("surrogate", list(SURROGATES))
def test_the_clamp_keeps_hidden_negatives_at_their_tight_bound(surrogate: str) -> None:
    labels = torch.tensor([0] * 4 + [-1] * 6)
    constants = plain_constants(mask({0}, 4), torch.full((4,), 0.25).double())
    logits = confident(labels, 4).requires_grad_()
    off = fedpu_risk(logits, labels, constants, surrogate=surrogate, clamp="off")
    clamped = fedpu_risk(logits, labels, constants, surrogate=surrogate, clamp="max")
    reverse = fedpu_risk(logits, labels, constants, surrogate=surrogate, clamp="reverse")
    bound = (3 - 1) * 0.75  # (|N| − 1) Σ_{j∈N} π_j
    hidden = (off["unlabelled"] + off["against-negative"]).item()
    assert hidden < bound
    kept = clamped["unlabelled"] + clamped["against-negative"] + clamped["clamp"]
    assert kept.item() == pytest.approx(bound)
    assert reverse["clamp"].item() == pytest.approx(2 * (bound - hidden))
    # Below the bound, "max" leaves the gradient of the labelled term alone, and "reverse" turns the part's around.
    (own,) = torch.autograd.grad(off["positive"], logits, retain_graph=True)
    (at_bound,) = torch.autograd.grad(clamped["total"], logits)
    torch.testing.assert_close(at_bound, own)
    (part,) = torch.autograd.grad(off["unlabelled"] + off["against-negative"], logits)
    (turned,) = torch.autograd.grad(reverse["total"], logits)
    torch.testing.assert_close(turned, own - part)


EMPTY_CASES = {
    "no labelled example": ([-1] * 6, {0, 1}),
    "no unlabelled example": ([0, 0, 1], {0, 1}),
    "no positive class": ([-1] * 6, set()),
    "all classes positive": ([0, 1, 2, 3, -1, -1], {0, 1, 2, 3}),
    "a class without labelled examples in the batch": ([0, 0, -1], {0, 1}),
    "no example at all but one": ([-1], {0}),
}


@pytest.mark.parametrize(("labels", "positive"), EMPTY_CASES.values(), ids=EMPTY_CASES)
@pytest.mark.parametrize("surrogate", list(SURROGATES))
def test_empty_cases_are_finite_and_equal_the_loop(labels: list[int], positive: set[int], surrogate: str) -> None:
    priors = torch.tensor([0.4, 0.3, 0.3, 0.0]).double()
    constants = plain_constants(mask(positive, 4), priors, torch.tensor(brute_force_lent([positive, {2}, {3}], 0, 4)))
    logits = torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    terms = fedpu_risk(logits, torch.tensor(labels), constants, surrogate=surrogate, clamp="max")
    terms["total"].backward()
    assert torch.isfinite(logits.grad).all()
    if len(positive) < 4:
        for name, value in by_loop(logits.detach(), torch.tensor(labels), constants, surrogate).items():
            assert terms[name].item() == pytest.approx(value, abs=1e-9), name
    else:
        assert terms["unlabelled"].item() == terms["against-negative"].item() == 0
    for other in (conventional_pu_risk, released_risk, released_older_risk):
        fresh = logits.detach().clone().requires_grad_()
        total = other(fresh, torch.tensor(labels), constants)["total"]
        total.backward()
        assert torch.isfinite(total)
        assert torch.isfinite(fresh.grad).all()


def test_a_cross_entropy_can_be_added() -> None:
    logits, labels, constants = random_case(1)
    added = fedpu_risk(logits, labels, constants, cross_entropy=0.5)
    labelled = labels >= 0
    expected = 0.5 * torch.nn.functional.cross_entropy(logits[labelled], labels[labelled])
    assert float(added["cross-entropy"]) == pytest.approx(float(expected))
    assert float(added["total"] - fedpu_risk(logits, labels, constants)["total"]) == pytest.approx(float(expected))


def test_conventional_pu_by_hand() -> None:
    logits, labels, constants = random_case(3)
    p = logits.softmax(dim=1)
    positive = constants.positive.nonzero()[:, 0].tolist()
    group = p[:, ~constants.positive].sum(dim=1)
    own = sum(float(constants.priors[i]) * float(-p[labels == i, i].log().mean()) for i in positive)
    unlabelled = 0.8 * float(-group[labels < 0].log().mean())
    correction = 0.8 * sum(
        float(constants.unlabelled_priors[i]) * float(-group[labels == i].log().mean()) for i in positive
    )
    terms = conventional_pu_risk(logits, labels, constants, clamp="max")
    assert float(terms["total"]) == pytest.approx(own + max(0.0, unlabelled - correction))
    off = conventional_pu_risk(logits, labels, constants, clamp="off")
    assert float(off["total"]) == pytest.approx(own + unlabelled - correction)
    bounded = conventional_pu_risk(logits, labels, constants, bounded=True, clamp="off")
    assert float(bounded["unlabelled"]) == pytest.approx(0.8 * float((1 - group[labels < 0]).mean()))


def test_with_one_positive_class_the_own_part_of_fedpu_is_conventional_pu() -> None:
    logits, labels, constants = random_case(5)
    one = int(constants.positive.nonzero()[0])
    constants = constants._replace(positive=mask({one}, 5), lent=torch.zeros(5, 5).double())
    labels = torch.where(labels == one, labels, -1)
    ours, theirs = (
        fedpu_risk(logits, labels, constants, clamp="off"),
        conventional_pu_risk(logits, labels, constants, clamp="off"),
    )
    constant = 3 * (0.8 - 0.8 * float(constants.unlabelled_priors[one]))  # (|N| − 1) of the rewritten terms
    assert float(ours["total"]) - constant == pytest.approx(float(theirs["total"]), abs=1e-4)  # ε in the log


@pytest.mark.parametrize("bounded", [False, True])
def test_upu_and_nnpu_are_the_published_binary_risks(bounded: bool) -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(0, 2, 60), np.where(rng.random(60) < 0.4, 1, -1)
    loss = (lambda v: 1 / (1 + np.exp(v))) if bounded else (lambda v: np.log1p(np.exp(-v)))
    for shift in (0.0, -6.0):  # far below zero the negative part of the unbiased risk is negative
        s = z + np.where(y < 0, shift, 0)
        own, part = 0.6 * loss(s[y > 0]).mean(), loss(-s[y < 0]).mean() - 0.6 * loss(-s[y > 0]).mean()
        args = torch.tensor(s), torch.tensor(y), 0.6
        assert float(upu_risk(*args, bounded=bounded)["total"]) == pytest.approx(own + part)
        assert float(nnpu_risk(*args, bounded=bounded)["total"]) == pytest.approx(own + max(0, part))


def test_the_released_losses_by_hand() -> None:
    logits, labels, constants = random_case(2)
    p, lab = logits.softmax(dim=1), labels >= 0
    y, pi = labels[lab], constants.unlabelled_priors
    ce = float(torch.nn.functional.cross_entropy(logits[lab], y))
    rows = torch.arange(len(y))
    s = -(1 - p + 1e-6).log()
    shipped = ce + float(s[~lab][:, constants.positive].sum(dim=1).mean()) / 5 - float((pi[y] * s[lab][rows, y]).mean())
    assert float(released_risk(logits, labels, constants)["total"]) == pytest.approx(shipped)
    s = -(1 - p + 0.01).log()
    older = (
        ce
        + float(s[~lab][:, constants.positive].sum(dim=1).mean()) / 2
        + float((pi[y] * s[lab][:, ~constants.positive].sum(dim=1)).mean()) / 3
        - float((pi[y] * s[lab][rows, y]).mean())
    )
    assert float(released_older_risk(logits, labels, constants)["total"]) == pytest.approx(older)


MUTANTS = [
    ('"positive": (', '"positive": -('),
    ('"positive": (', '"positive": 0 * ('),
    ('"against-negative": -(', '"against-negative": ('),
    ('"against-negative": -(', '"against-negative": -0.0 * ('),
    ('"unlabelled": constants.unlabelled_share', '"unlabelled": -constants.unlabelled_share'),
    ('"unlabelled": constants.unlabelled_share', '"unlabelled": 0 * constants.unlabelled_share'),
    ('"lent": (', '"lent": -('),
    ('"lent": (', '"lent": 0 * ('),
    ("batch.labelled @ right", "batch.labelled @ wrong"),
    ("right @ p", "right @ (1 - p)"),
    ("constants.unlabelled_share * constants.unlabelled_priors", "constants.unlabelled_priors"),
    ("constants.unlabelled_share * constants.unlabelled_priors", "constants.unlabelled_share * constants.priors"),
    ("(-excess).clamp", "excess.clamp"),
    ("exists * (negatives - 1)", "exists * negatives"),
]


@pytest.mark.parametrize(("original", "mutant"), MUTANTS, ids=[mutant for _, mutant in MUTANTS])
def test_a_changed_sign_or_dropped_term_would_be_seen(original: str, mutant: str) -> None:
    source = Path(federated_module.__file__).read_text()
    assert original in source
    space: dict[str, object] = {"__name__": "mutated"}
    exec(compile(source.replace(original, mutant), "mutated", "exec"), space)
    differences = []
    for seed in range(20):
        logits, labels, constants = random_case(seed)
        terms = space["fedpu_risk"](logits, labels, constants)  # type: ignore[operator]
        expected = by_loop(logits, labels, constants, "log")
        differences.append(max(abs(float(terms[name]) - value) for name, value in expected.items()))
    assert max(differences) > 1e-3


def test_the_loss_for_anybodys_loop_refuses_what_it_would_misread() -> None:
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([1, 1, -1, -1, -1, -1])
    loss = FedPULoss(positive=[1], priors=0.25, classes=4)
    loss(logits, labels).backward()
    assert torch.isfinite(logits.grad).all()
    constants = plain_constants(mask({1}, 4), torch.full((4,), 0.25))
    assert loss(logits, labels).item() == pytest.approx(fedpu_risk(logits, labels, constants)["total"].item())
    assert loss(logits.double(), labels).dtype == torch.float64
    half = FedPULoss(positive=[1], priors=0.25, classes=4, unlabelled_share=0.5)
    assert half(logits, labels).item() != pytest.approx(loss(logits, labels).item())
    for wrong in (4, -2, 2):
        with pytest.raises(ConfigError, match="labels must be"):
            loss(logits, torch.full((6,), wrong))
    for settings_ in (
        {"priors": -3.0},
        {"priors": [0.5, 0.5]},
        {"clamp": "maximum"},
        {"surrogate": "lg"},
        {"positive": [4]},
    ):
        with pytest.raises(ConfigError):
            FedPULoss(**{"positive": [1], "priors": 0.25, "classes": 4, **settings_})  # type: ignore[arg-type]


SURE = 30.0
"""a logit that decides for a class all but certainly"""


@pytest.mark.parametrize(
    ("surrogate", "clamp", "slope"),
    [
        ("absolute", "off", 0.0),
        ("absolute", "max", 0.105),
        ("absolute", "reverse", 0.210),
        ("log", "off", 0.762),
        ("log", "reverse", -0.762),
    ],
)
def test_clamp_and_log_surrogate_undo_that_unlabelled_terms_cancel(surrogate: str, clamp: str, slope: float) -> None:
    # Clients {0} and {1} with priors ½ share an unlabelled example, and have labelled examples that are decided surely.
    unlabelled = torch.tensor([[2.0, 0.0]], dtype=torch.float64, requires_grad=True)
    parts = []
    for label in (0, 1):
        labelled = SURE * torch.eye(2, dtype=torch.float64)[[label]]
        constants = plain_constants(mask({label}, 2), torch.full((2,), 0.5).double())
        logits, labels = torch.cat([unlabelled, labelled]), torch.tensor([-1, label])
        terms = fedpu_risk(logits, labels, constants, surrogate=surrogate, clamp=clamp)  # type: ignore[arg-type]
        parts.append(terms["total"])
    (gradient,) = torch.autograd.grad(sum(parts), unlabelled)
    np.testing.assert_allclose(gradient[0], [slope, -slope], atol=5e-4)


@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(["entropy", "log"]))
def test_only_a_concave_function_of_the_outputs_draws_unlabelled_examples_to_a_class(
    seed: int, classes: int, kind: str
) -> None:
    """A step against the gradient from any outputs: the surest class gains with the entropy, and loses with log."""
    logits = torch.tensor(np.random.default_rng(seed).normal(0, 1, (1, classes)), requires_grad=True)
    p = logits.softmax(dim=1)
    loss = -(p * p.log()).sum() if kind == "entropy" else SURROGATES["log"](logits).right.sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    moved = (logits - 1e-3 * gradient).softmax(dim=1)
    gained = float((moved - p).detach()[0, int(p.argmax())])
    assert gained > 0 if kind == "entropy" else gained < 0
