"""The bound of the whole federation holds over repeated draws, and has the closed form that it should."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpu import theory
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.labelling import ClassSummary
from fedpu.priors import unlabelled_priors
from fedpu.risk import Lent, RiskConstants, co_negatives, equations, lent_weights
from fedpu.theory import Counts
from risk.world import mask

SETS = [{0, 1}, {1, 2}, {3}, {0, 3}]
HELD = np.array([[40, 30, 20, 10], [10, 40, 40, 20], [30, 30, 30, 30], [25, 5, 50, 20]])
"""examples of each client and class"""


def labelled_counts() -> np.ndarray:
    return np.array([[HELD[k, i] // 2 if i in chosen else 0 for i in range(4)] for k, chosen in enumerate(SETS)])


def clients(scenario: str = "censored") -> Counts:
    labelled = labelled_counts()
    unlabelled = HELD.sum(axis=1) - (0 if scenario == "case-control" else labelled.sum(axis=1))
    summary = ClassSummary(
        positive=torch.stack([mask(chosen, 4) for chosen in SETS]),
        priors=torch.tensor(HELD / HELD.sum(axis=1, keepdims=True)),
        labelled=torch.tensor(labelled),
        unlabelled=torch.tensor(unlabelled),
        scenario=scenario,  # type: ignore[arg-type]
    )
    return Counts(summary, scenario == "case-control")


def tasks(known: Counts, lent: Lent) -> list[RiskConstants]:
    summary = known.summary
    assert summary.priors is not None
    inside, share = unlabelled_priors(summary.priors, summary.labelled, summary.unlabelled, summary.scenario)
    sizes = torch.tensor(HELD.sum(axis=1)) if lent == "shared" else None
    weights = lent_weights(co_negatives(summary.positive, sizes), summary.positive, len(SETS), lent)
    zero = torch.zeros(5)
    return [
        RiskConstants(summary.positive[k], summary.priors[k], inside[k], share[k], weights[k], zero)
        for k in range(len(SETS))
    ]


def risk(constants: RiskConstants, decided: np.ndarray, mixed: np.ndarray) -> float:
    """``equ:fedpurisk`` when class i is decided for d with frequency decided[i, d], and U with mixed[d]."""
    return float(equations.fedpu_risk(constants, torch.tensor(1 - decided), torch.tensor(1 - mixed))["total"])


def draw(rng: np.random.Generator, truth: np.ndarray, k: int, twice: bool) -> tuple[np.ndarray, np.ndarray]:
    """Decisions on client k's examples, as frequencies over its labelled examples by class and over U."""
    labelled = labelled_counts()[k]
    known = np.array([rng.multinomial(labelled[i], truth[i]) for i in range(4)])
    hidden = sum(rng.multinomial(HELD[k, i] - labelled[i], truth[i]) for i in range(4))
    unlabelled = hidden + known.sum(axis=0) if twice else hidden
    return known / np.maximum(labelled, 1)[:, None], unlabelled / unlabelled.sum()


def expected_mix(truth: np.ndarray, k: int, twice: bool) -> np.ndarray:
    inside = HELD[k] if twice else HELD[k] - labelled_counts()[k]
    return inside @ truth / inside.sum()


WORLDS = {
    "anyhow": np.random.default_rng(5).dirichlet(np.ones(4), size=4),
    "own class or the next": np.array([[0.5 * (d in (i, (i + 2) % 4)) for d in range(4)] for i in range(4)]),
    "nearly right": np.full((4, 4), 0.01) + 0.96 * np.eye(4),
}


@pytest.mark.parametrize("truth", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize(("scenario", "lent"), [("censored", "printed"), ("case-control", "shared")])
def test_the_deviation_stays_under_the_bound_over_repeated_draws(truth: np.ndarray, scenario: str, lent: Lent) -> None:
    rng, delta, draws = np.random.default_rng(0), 0.2, 250
    known = clients(scenario)
    result, of = theory.theorem5(known, lent, delta), tasks(known, lent)
    expected = [risk(constants, truth, expected_mix(truth, k, known.twice)) for k, constants in enumerate(of)]
    drawn = [
        [risk(constants, *draw(rng, truth, k, known.twice)) for k, constants in enumerate(of)] for _ in range(draws)
    ]
    off = np.array(expected) - np.array(drawn)
    assert ((off > result.clients.total.numpy()).mean(axis=0) <= delta).all()
    assert (off.sum(axis=1) > float(result.all.total)).mean() <= delta
    assert (-off.sum(axis=1) > float(result.all.total)).mean() <= delta


def test_the_bound_is_not_idle() -> None:
    # Examples that are as often decided for the best as for the worst class: deviations come near the bound.
    rng, delta = np.random.default_rng(1), 0.05
    known = clients()
    result, constants = theory.theorem5(known, "printed", delta), tasks(known, "printed")[2]
    truth = np.array([[0.5, 0, 0, 0.5]] * 4)
    expected = risk(constants, truth, expected_mix(truth, 2, False))
    off = [expected - risk(constants, *draw(rng, truth, 2, False)) for _ in range(400)]
    assert np.quantile(off, 1 - delta) > 0.5 * float(result.clients.total[2])


@pytest.mark.parametrize("scenario", ["censored", "case-control"])
def test_the_weights_of_decisions_are_those_of_the_literal_equation(scenario: str) -> None:
    rng, known = np.random.default_rng(2), clients(scenario)
    summary, truth = known.summary, WORLDS["anyhow"]
    assert summary.priors is not None
    for k, constants in enumerate(tasks(known, "printed")):
        of_one = ClassSummary(
            summary.positive[k][None],
            summary.priors[k][None],
            summary.labelled[k][None],
            summary.unlabelled[k][None],
            summary.scenario,
        )
        stacked = RiskConstants(*(part[None] for part in constants))
        sample = theory.fedpu_sample(stacked, of_one, known.twice)
        differences = []
        for _ in range(5):
            labelled, mixed = draw(rng, truth, k, known.twice)
            known_counts = labelled * labelled_counts()[k][:, None]
            rest = mixed * int(summary.unlabelled[k]) - (known_counts.sum(axis=0) if known.twice else 0)
            added = (sample.weights[0].numpy() * np.vstack([known_counts, rest])).sum()
            differences.append(risk(constants, labelled, mixed) - added)
        assert differences == pytest.approx([differences[0]] * 5)


def test_labelled_examples_that_stay_among_the_unlabelled_change_nothing() -> None:
    # Both scenarios are then one estimate, written in two ways.
    one, other = (theory.theorem5(clients(s), "printed", 0.05, vc=3) for s in ("censored", "case-control"))
    assert torch.allclose(one.fedpu.total, other.fedpu.total)
    assert torch.equal(one.supervised.total, other.supervised.total)


@pytest.mark.parametrize(("number", "positive"), [(10, 1), (5, 2), (2, 5)])
@pytest.mark.parametrize("fraction", [0.5, 0.1])
def test_the_ratio_to_full_supervision_in_closed_form(number: int, positive: int, fraction: float) -> None:
    # The paper's rows without overlap: K clients, C/K classes each, all of them equally large.
    classes, per_class = 10, 100
    chosen = torch.stack([mask(set(range(k * positive, (k + 1) * positive)), classes) for k in range(number)])
    labelled = torch.where(chosen, round(fraction * per_class), 0)
    unlabelled = classes * per_class - labelled.sum(dim=1)
    priors = torch.full((number, classes), 1 / classes).double()
    result = theory.theorem5(
        Counts(ClassSummary(chosen, priors, labelled, unlabelled, "censored"), False), "printed", 0.05
    )
    ratio = float(result.all.total / result.supervised.together().total)
    weight = number if positive > 1 else number - fraction
    assert ratio == pytest.approx(math.sqrt(weight**2 / (number * fraction) + 1 - fraction / number))
    # All data in one place bound the mean over clients no better than the clients themselves do.
    assert float(result.supervised.together().total) / number == pytest.approx(float(result.pooled.total))


def test_lent_shares_keep_the_bound_from_growing_with_the_number_of_clients() -> None:
    def bound(r: int, lent: Lent) -> float:
        chosen = torch.stack([mask({c}, 3) for c in range(3) for _ in range(r)])
        summary = ClassSummary(
            positive=chosen,
            priors=torch.full((3 * r, 3), 1 / 3).double(),
            labelled=torch.where(chosen, 50, 0),
            unlabelled=torch.full((3 * r,), 100),
            scenario="censored",
        )
        return float(theory.theorem5(Counts(summary, False), lent, 0.05).clients.total.max())

    assert bound(100, "printed") > 8 * bound(10, "printed")
    assert bound(100, "shared") == pytest.approx(bound(10, "shared"))


def test_more_of_either_kind_and_the_limit(tiny_config: Config) -> None:
    known = theory.counts(prepare(tiny_config).federation)
    totals = [
        float(theory.theorem5(theory.scaled(known, t, t), "printed", 0.05, 2).all.total) for t in (1.0, 10.0, 1e6)
    ]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] < 0.02
    assert theory.possible(known)
    assert not theory.possible(theory.scaled(known, labelled=3.0))
    assert known.examples.sum() == 1442
    assert not known.twice
    twice = theory.counts(prepare(tiny_config.with_("labelling.scenario=case-control")).federation)
    assert twice.twice
    assert twice.examples.sum() == 1442


def test_a_sample_that_is_missing_is_named() -> None:
    known = clients()
    none = known.summary._replace(labelled=torch.zeros_like(known.summary.labelled))
    with pytest.raises(ConfigError, match="Client 0 has no labelled example of its positive class 0"):
        theory.theorem5(Counts(none, False), "printed", 0.05)
    empty = known.summary._replace(unlabelled=torch.zeros_like(known.summary.unlabelled), scenario="case-control")
    with pytest.raises(ConfigError, match="Client 0 has negative classes but no unlabelled example"):
        theory.theorem5(Counts(empty, False), "printed", 0.05)
