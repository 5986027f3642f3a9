"""The observable likelihood is proper: in worlds with exact sums nothing scores better than the true posterior."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu.labelling import ClassSummary, Scenario
from fedpu.risk import client_posterior, consistent_priors, labelled_odds, observable_loss

SCENARIOS: list[Scenario] = ["censored", "case-control"]


@dataclass(frozen=True, eq=False)
class Worlds:
    """Clients that agree on what classes look like, and on nothing else; every probability is enumerated."""

    looks: np.ndarray  # P(x | y), classes × points
    priors: np.ndarray  # π_k, clients × classes
    rates: np.ndarray  # e_k, clients × classes
    sizes: np.ndarray  # n_k

    @classmethod
    def random(cls, seed: int, classes: int, points: int, clients: int) -> Worlds:
        rng = np.random.default_rng(seed)
        rates = rng.uniform(0.2, 1, (clients, classes)) * (rng.random((clients, classes)) < 0.5)
        rates[rng.integers(0, clients, classes), np.arange(classes)] = 0.5  # somebody labels each class
        return cls(
            rng.dirichlet(np.ones(points), classes),
            rng.dirichlet(np.full(classes, 2.0), clients),
            rates,
            rng.uniform(1, 5, clients),
        )

    @property
    def shares(self) -> np.ndarray:
        """Class shares of all clients together."""
        return self.sizes / self.sizes.sum() @ self.priors

    @property
    def posterior(self) -> np.ndarray:
        """P(y | x) in the federation, points × classes."""
        joint = (self.shares[:, None] * self.looks).T
        return joint / joint.sum(axis=1, keepdims=True)

    def score(self, posterior: np.ndarray, scenario: Scenario = "censored") -> float:
        """The expected score of a model: a sum over clients, points, classes and whether there is a label."""
        total = 0.0
        points, classes = posterior.shape
        log_model = torch.tensor(np.log(posterior))
        for pi, e, n in zip(self.priors, self.rates, self.sizes, strict=True):
            p = client_posterior(log_model, torch.tensor(pi), torch.tensor(self.shares))
            for x, y in itertools.product(range(points), range(classes)):
                mass = n * pi[y] * self.looks[y, x]
                labelled, none = (
                    float(observable_loss(p[x : x + 1], torch.tensor([label]), torch.tensor(e), scenario))
                    for label in (y if e[y] > 0 else -1, -1)
                )
                # Case-control: labelled examples are drawn again beside the whole population; e is then w.
                unlabelled = mass * (1 - e[y]) if scenario == "censored" else mass
                total += mass * e[y] * labelled + unlabelled * none
        return total


@pytest.mark.parametrize("scenario", SCENARIOS)
@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 4))
def test_nothing_scores_better_than_the_true_posterior(
    scenario: Scenario, seed: int, classes: int, clients: int
) -> None:
    worlds = Worlds.random(seed, classes, 3, clients)
    truth = worlds.posterior
    least = worlds.score(truth, scenario)
    rng = np.random.default_rng(seed)
    for strength in (0.01, 0.1, 1.0):
        moved = truth * np.exp(strength * rng.normal(size=truth.shape))
        assert worlds.score(moved / moved.sum(axis=1, keepdims=True), scenario) >= least - 1e-12


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_grid_finds_the_truth_and_only_the_truth_for_clients_that_differ(scenario: Scenario) -> None:
    """Every posterior on a grid is tried at each of two points; the best is the one next to the true one."""
    looks = np.array([[0.8, 0.2], [0.3, 0.7]])
    worlds = Worlds(looks, np.array([[0.2, 0.8], [0.7, 0.3]]), np.array([[0.5, 0], [0, 0.3]]), np.array([1.0, 2.0]))
    grid = np.linspace(0.01, 0.99, 99)
    best = np.zeros(2)
    for x in range(2):
        scores = []
        for p in grid:
            model = worlds.posterior.copy()
            model[x] = [p, 1 - p]
            scores.append(worlds.score(model, scenario))
        best[x] = grid[int(np.argmin(scores))]
    np.testing.assert_allclose(best, worlds.posterior[:, 0], atol=0.006)


def test_a_model_adjusted_to_the_wrong_shares_scores_worse() -> None:
    worlds = Worlds.random(3, 3, 4, 3)
    unadjusted = Worlds(worlds.looks, np.repeat(worlds.shares[None], 3, axis=0), worlds.rates, worlds.sizes)
    right = worlds.score(worlds.posterior)
    wrong = 0.0
    for k in range(3):  # each client scored as if its shares were the federation's
        one = Worlds(worlds.looks, worlds.priors[k : k + 1], worlds.rates[k : k + 1], worlds.sizes[k : k + 1])
        wrong += one.score(unadjusted.posterior)
    assert wrong > right


def summary(priors: list[float], labelled: list[int], unlabelled: int, scenario: Scenario = "censored") -> ClassSummary:
    counts = torch.tensor(labelled)
    return ClassSummary(counts > 0, torch.tensor(priors), counts, torch.tensor(unlabelled), scenario)


def test_the_labelled_shares_are_counted() -> None:
    known = summary([0.5, 0.3, 0.2], [25, 30, 0], 45)
    priors = consistent_priors(known)
    np.testing.assert_allclose(priors, [0.5, 0.3, 0.2], atol=1e-6)
    # Half of class 0, all of class 1, nothing of class 2.
    np.testing.assert_allclose(labelled_odds(known, priors), [0.5, 1, 0], atol=1e-6)
    twice = summary([0.5, 0.3, 0.2], [25, 30, 0], 100, "case-control")
    np.testing.assert_allclose(labelled_odds(twice, consistent_priors(twice)), [0.5, 1, 0], atol=1e-6)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("priors", [[0.0, 0.5, 0.5], [0.05, 0.05, 0.05], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
@pytest.mark.parametrize("labelled", [[10, 0, 0], [10, 20, 30], [0, 0, 0]])
@pytest.mark.parametrize("unlabelled", [0, 40])
def test_wrong_priors_and_empty_cases_give_finite_scores(
    scenario: Scenario, priors: list[float], labelled: list[int], unlabelled: int
) -> None:
    known = summary(priors, labelled, unlabelled, scenario)
    shares = consistent_priors(known)
    odds = labelled_odds(known, shares)
    assert float(shares.sum()) == pytest.approx(1, abs=1e-6) or not sum(labelled) + unlabelled
    assert scenario == "case-control" or bool((odds <= 1).all())
    logits = torch.tensor([[1000.0, 0, -1000]])
    for label in [c for c in range(3) if labelled[c]] + ([-1] if unlabelled else []):
        loss = observable_loss(client_posterior(logits, shares, shares), torch.tensor([label]), odds, scenario)
        assert 0 <= float(loss) < 28


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_probabilities_of_what_can_be_observed_add_up_to_one(scenario: Scenario) -> None:
    posterior = torch.tensor([[0.2, 0.5, 0.3]]).double().log()
    odds = torch.tensor([0.5, 0.9, 0.0]).double()
    seen = [float(observable_loss(posterior, torch.tensor([label]), odds, scenario)) for label in (-1, 0, 1)]
    assert sum(np.exp(-np.array(seen))) == pytest.approx(1)
