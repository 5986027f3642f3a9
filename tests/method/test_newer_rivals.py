"""SAGE, FedLC and Dist-PU's mean matching against their equations; and FedPU where every class is positive."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedpu.labelling import ClassSummary
from fedpu.method import SAGE, Batch, DistPU, FedLC, FedPU, LabelledOnly
from fedpu.risk import RiskConstants, plain_constants

LABELS = torch.tensor([2, -1, 0, -1, -1, 1, -1, 0])
EVERY = torch.ones(3, dtype=torch.bool)


def drawn(seed: int, scale: float = 3.0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(len(LABELS), 3, generator=random, dtype=torch.float64)).requires_grad_()


def test_sage_mixes_what_client_and_received_model_say_by_their_gap_in_confidence() -> None:
    method = SAGE(confidence=0.6, unlabelled_weight=2.0)
    weak, strong, received = drawn(0, 1.0), drawn(1), drawn(2).detach().softmax(dim=1)
    views = {"weak": torch.zeros(8, 1), "strong": torch.ones(8, 1)}
    batch = Batch(LABELS, views, {"received": received})
    terms = method.objective(lambda x: weak if x is views["weak"] else strong, batch, plain(EVERY))
    expected, kinds = 0.0, set()
    for row in (LABELS < 0).nonzero()[:, 0].tolist():
        p, g = weak[row].softmax(dim=0).tolist(), received[row].tolist()
        own, theirs = p.index(max(p)), g.index(max(g))
        if max(p) < 0.6 and max(g) < 0.6:
            kinds.add("nobody")
            continue
        say = 2 ** (-abs(max(p) - max(g)) / 0.05) if max(p) >= 0.6 else 0.0
        kinds.add("client" if say else "received")
        target = [say * (j == own) + (1 - say) * (j == theirs) for j in range(3)]
        log_p = strong[row].log_softmax(dim=0).tolist()
        expected += sum(t * (math.log(t) - log_p[j]) for j, t in enumerate(target) if t)
    assert kinds >= {"client", "received"}
    assert terms["unlabelled"].item() == pytest.approx(2 * expected / 4)
    known = LABELS >= 0
    assert terms["labelled"].item() == pytest.approx(F.cross_entropy(weak[known], LABELS[known]).item())
    terms["total"].backward()
    assert weak.grad is not None
    assert not weak.grad[~known].any(), "targets have no gradient"


def test_sage_without_a_gap_is_the_clients_say_and_with_a_wide_one_everybodys() -> None:
    method = SAGE()
    sure, unsure = torch.tensor([[0.97, 0.02, 0.01]]), torch.tensor([[0.2, 0.45, 0.35]])
    assert method.targets(sure, sure.flip(1)).tolist()[0] == pytest.approx([1.0, 0, 0])
    assert method.targets(sure, unsure).tolist()[0] == pytest.approx([2 ** (-0.52 / 0.05), 1 - 2 ** (-0.52 / 0.05), 0])
    assert method.targets(unsure, sure).tolist()[0] == pytest.approx([1.0, 0, 0])


def plain(positive: Tensor, priors: Tensor | None = None) -> RiskConstants:
    return plain_constants(positive, torch.full((3,), 1 / 3) if priors is None else priors)


def summary(counts: list[int]) -> ClassSummary:
    labelled = torch.tensor(counts)
    return ClassSummary(labelled > 0, None, labelled, torch.tensor(10), "censored")


def test_fedlc_takes_a_margin_off_each_classs_logit() -> None:
    method, logits = FedLC(margin=0.5), drawn(3)
    known = LABELS >= 0
    batch = Batch(LABELS[known], {"weak": torch.zeros(4, 1)})
    constants = method.constants(summary([16, 1, 81]), torch.zeros(3, 3), 1)
    margins = torch.tensor([0.5 / 2, 0.5, 0.5 / 3], dtype=torch.float64)
    found = method.objective(lambda x: logits[known], batch, constants)["total"]
    expected = F.cross_entropy(logits[known] - margins, LABELS[known])
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_fedlc_leaves_classes_out_that_a_client_does_not_label() -> None:
    method = FedLC()
    logits = torch.tensor([[1.0, 0.0, 30.0]])
    batch = Batch(torch.tensor([0]), {"weak": torch.zeros(1, 1)})
    two = method.objective(lambda x: logits, batch, method.constants(summary([4, 4, 0]), torch.zeros(3, 3), 1))["total"]
    assert two.item() == pytest.approx(math.log(1 + math.exp(-1)), rel=1e-5)


def test_fedlc_is_plain_cross_entropy_where_all_classes_have_as_many_labels() -> None:
    logits = drawn(4)
    known = LABELS >= 0
    batch = Batch(LABELS[known], {"weak": torch.zeros(4, 1)})
    losses = [
        method.objective(lambda x: logits[known], batch, method.constants(summary([5, 5, 5]), torch.zeros(3, 3), 1))
        for method in (FedLC(), LabelledOnly())
    ]
    assert losses[0]["total"].item() == pytest.approx(losses[1]["total"].item(), rel=1e-6)


def test_dist_pu_matches_means_to_class_shares() -> None:
    priors, inside = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.3, 0.1])
    constants = plain(EVERY, priors)._replace(unlabelled_priors=inside)
    logits = drawn(5)
    terms = DistPU(entropy=0.1).objective(lambda x: logits, Batch(LABELS, {"weak": torch.zeros(8, 1)}), constants)
    p = logits.softmax(dim=1)
    labelled = sum(
        2 * priors[i].item() * (1 - p[rows, i].mean().item()) for i, rows in ((0, [2, 7]), (1, [5]), (2, [0]))
    )
    mean = p[[1, 3, 4, 6]].mean(dim=0)
    entropy = -(p * p.log()).sum(dim=1)[[1, 3, 4, 6]].mean()
    assert terms["labelled"].item() == pytest.approx(labelled, rel=1e-6)
    assert terms["unlabelled"].item() == pytest.approx((mean - inside).abs().sum().item() / 2, rel=1e-6)
    assert terms["entropy"].item() == pytest.approx(0.1 * entropy.item(), rel=1e-6)


def test_dist_pu_with_two_classes_is_the_papers_label_distribution_loss() -> None:
    prior = 0.4
    constants = plain_constants(torch.tensor([False, True]), torch.tensor([1 - prior, prior]))
    logits = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([1, 1, -1, -1, -1, -1])
    terms = DistPU(entropy=0).objective(lambda x: logits, Batch(labels, {"weak": torch.zeros(6, 1)}), constants)
    score = logits.softmax(dim=1)[:, 1]
    expected = 2 * prior * abs(score[:2].mean() - 1) + abs(score[2:].mean() - prior)
    assert terms["total"].item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("clamp", ["reverse", "max", "off"])
def test_fedpu_has_no_unlabelled_term_where_every_class_is_positive(clamp: str) -> None:
    """What is left is cross-entropy with labels weighted by the client's priors."""
    priors = torch.tensor([0.5, 0.3, 0.2])
    method, logits = FedPU(clamp=clamp, expectation="batch"), drawn(6).detach().float().requires_grad_()
    constants = method.constants(
        ClassSummary(EVERY, priors, torch.tensor([2, 1, 1]), torch.tensor(4), "censored"), torch.zeros(3, 3), 1
    )
    terms = method.objective(lambda x: logits, Batch(LABELS, {"weak": torch.zeros(8, 1)}), constants)
    terms["total"].backward()
    assert logits.grad is not None
    assert not logits.grad[LABELS < 0].any()
    losses = -logits.log_softmax(dim=1)
    expected = sum(priors[i].item() * losses[rows, i].mean().item() for i, rows in ((0, [2, 7]), (1, [5]), (2, [0])))
    assert terms["total"].item() == pytest.approx(expected, rel=1e-6)


def test_the_released_code_punishes_sure_predictions_there_instead() -> None:
    method = FedPU(surrogate="released-code")
    constants = plain(EVERY)
    labels = torch.tensor([0, -1])

    def unlabelled(*row: float) -> float:
        logits = torch.tensor([[0.0, 0.0, 0.0], list(row)])
        terms = method.objective(lambda x: logits, Batch(labels, {"weak": torch.zeros(2, 1)}), constants)
        return float(terms["unlabelled"])

    even = unlabelled(0, 0, 0)
    assert even == pytest.approx(-math.log(1 - 1 / 3), abs=1e-4)
    assert even < unlabelled(1, 0, 0) < unlabelled(3, 0, 0) < unlabelled(6, 0, 0)
