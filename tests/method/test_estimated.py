"""Batches that are half labelled, for risks made of expectations over a class and over U."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.method import Aligned, ConventionalPU, FedPU, shuffled_batches
from fedpu.method.estimated import EstimatedRisk
from fedpu.randomness import torch_generator
from fedpu.risk import conventional_pu_risk, fedpu_risk, plain_constants
from fedpu.round import Work

LABELS = torch.tensor([1] * 5 + [-1] * 15)
KINDS: list[type[EstimatedRisk]] = [FedPU, ConventionalPU]


def drawn(method: EstimatedRisk, round_: int) -> list[Tensor]:
    work = Work(client=0, round=round_, lr=0.1, batch_size=6)
    return method.batches(LABELS, work, partial(torch_generator, 0, "batches", round_))


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_a_batch_is_labelled_where_it_is_asked_for(kind: type[EstimatedRisk]) -> None:
    half, plain = kind(expectation="batch", half_labelled=True), kind()
    assert [int((LABELS[batch] >= 0).sum()) for batch in drawn(half, 0)] == [3, 3, 3, 3]
    aligned = Aligned().batches(
        LABELS, Work(client=0, round=0, lr=0.1, batch_size=6), partial(torch_generator, 0, "batches", 0)
    )
    assert all(map(torch.equal, drawn(half, 0), aligned)), "drawn as aligned targets draw theirs"
    assert sorted(torch.cat(drawn(plain, 0)).tolist()) == list(range(20))
    assert plain.shuffles
    assert not half.shuffles


@pytest.mark.parametrize("kind", KINDS)
def test_their_risk_is_on_average_that_of_all_data(kind: type[EstimatedRisk]) -> None:
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    constants = plain_constants(torch.tensor([False, True, False]), torch.tensor([0.3, 0.4, 0.3]).double())
    risk = fedpu_risk if kind is FedPU else conventional_pu_risk
    whole = risk(logits, LABELS, constants, clamp="off")
    method = kind(expectation="batch", half_labelled=True, clamp="off")
    batches = [batch for round_ in range(500) for batch in drawn(method, round_)]
    values = [risk(logits[batch], LABELS[batch], constants, clamp="off") for batch in batches]
    for name, value in whole.items():
        seen = torch.tensor([float(terms[name]) for terms in values], dtype=torch.float64)
        assert float(seen.mean()) == pytest.approx(float(value), abs=4 * float(seen.std()) / len(seen) ** 0.5 + 1e-9)


@pytest.mark.parametrize("name", ["fedpu", "conventional-pu"])
def test_they_need_means_over_the_batchs_own_members(tiny_config: Config, name: str) -> None:
    with pytest.raises(ConfigError, match='half_labelled = true needs expectation = "batch"'):
        tiny_config.with_(f'method={{name="{name}",half_labelled=true}}')


def test_a_method_of_ones_own_still_draws_its_own_batches() -> None:
    class Mine(FedPU):
        def batches(self, labels, work, generator):  # type: ignore[no-untyped-def]
            return shuffled_batches((labels >= 0).nonzero()[:, 0], work, generator)

    assert not Mine().shuffles
