"""The stronger Baseline-1: as many steps as others, logits that know what a client labels, and the gap from it."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpu.applications.comparison import compare, is_end
from fedpu.applications.experiment import run
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.method import LOWER_ENDS, Batch, FedPU, LabelledOnly, repeated_batches
from fedpu.randomness import torch_generator
from fedpu.report import save_comparison, terminal_table
from fedpu.risk import co_negatives
from fedpu.round import Work


def test_it_takes_as_many_steps_as_a_method_on_all_data(tiny_config: Config) -> None:
    client = prepare(tiny_config).federation.client(0)
    for work in (Work(0, 0, 0.1, batch_size=20), Work(0, 0, 0.1, epochs=3), Work(0, 0, 0.1, batch_size=7, share=0.5)):
        generator = partial(torch_generator, 0, "batches")
        mine = LabelledOnly().batches(client.labels, work, generator)
        assert len(mine) == len(FedPU().batches(client.labels, work, generator))
        assert bool((client.labels[torch.cat(mine)] >= 0).all())
    assert LabelledOnly().batches(torch.full((9,), -1), work, generator) == []


def test_every_labelled_example_is_used_equally_often() -> None:
    usable = torch.tensor([3, 5, 8])
    work = Work(0, 0, 0.1, batch_size=2)
    batches = repeated_batches(usable, 9, work, partial(torch_generator, 0, "batches"))
    assert [len(batch) for batch in batches] == [2] * 5
    counts = torch.bincount(torch.cat(batches), minlength=10)
    assert sorted(counts[usable].tolist()) == [3, 3, 4]
    assert int(counts.sum()) == 10


def test_the_loss_is_that_of_its_equation(tiny_config: Config) -> None:
    federation = prepare(tiny_config).federation
    client = federation.client(1)
    known = (client.labels >= 0).nonzero()[:, 0]
    inputs, labels = client.batch(known)
    z = torch.randn(len(known), 10, generator=torch.Generator().manual_seed(0))
    counts = np.bincount(labels.numpy(), minlength=10)
    for method in (LabelledOnly(smoothing=0.3), LabelledOnly(), LabelledOnly(smoothing=0)):
        constants = method.constants(client.summary, co_negatives(federation.positive), 5)
        expected = 0.0
        for row, y in zip(z.double().tolist(), labels.tolist(), strict=True):
            even = method.smoothing
            q = [(1 - even) * n / counts.sum() + even / 10 for n in counts]
            expected -= math.log(q[y] * math.exp(row[y]) / sum(a * math.exp(b) for a, b in zip(q, row, strict=True)))
        terms = method.objective(lambda _: z, Batch(labels, {"weak": inputs}), constants)
        assert float(terms["total"]) == pytest.approx(expected / len(known), rel=1e-5)


def test_with_one_class_and_no_smoothing_nothing_is_learned() -> None:
    labels = torch.zeros(4, dtype=torch.int64)
    for smoothing, learns in ((0, False), (0.1, True), (1, True)):
        method = LabelledOnly(smoothing=smoothing)
        z = torch.zeros(4, 3, requires_grad=True)
        constants = method.constants(_one_class(), torch.zeros(3, 3), 3)
        method.objective(lambda _: z, Batch(labels, {"weak": torch.zeros(4, 1)}), constants)["total"].backward()  # noqa: B023
        assert z.grad is not None
        assert bool(torch.isfinite(z.grad).all())
        assert bool(z.grad.abs().sum() > 0) == learns


@pytest.mark.parametrize("smoothing", [0, 0.3, 1])
def test_stacked_clients_are_trained_to_the_same_model(tiny_config: Config, smoothing: float) -> None:
    """Clients with other classes, and batches of other lengths, at once and one by one."""
    uneven = ["partition.kind=dirichlet", "labelling.overlap=true", "aggregation.rounds=2"]
    config = tiny_config.with_(*uneven, "method.name=labelled-only", f"method.smoothing={smoothing}")
    notes: list[str] = []
    fast = run(config, on_note=notes.append).model.state_dict()
    assert notes == [], "clients are trained in stacks"
    slow = run(config.with_("engine.name=reference")).model.state_dict()
    for name, value in slow.items():
        torch.testing.assert_close(fast[name], value, rtol=1e-4, atol=1e-5)


def _one_class():  # type: ignore[no-untyped-def]
    from fedpu.labelling import ClassSummary

    counts = torch.tensor([4, 0, 0])
    return ClassSummary(counts > 0, None, counts, torch.tensor(8), "censored")


def test_the_gap_is_measured_from_the_stronger_baseline(tiny_config: Config, tmp_path: Path) -> None:
    assert LOWER_ENDS == ("positive-only", "labelled-only")
    assert is_end("labelled-only+aggregation.lr=0.2", "lower")
    assert not is_end("fedpu", "lower")
    assert not is_end("fedpu", "upper")
    methods = [
        "fedpu",
        "positive-only",
        "labelled-only",
        "labelled-only+smoothing=0.3",
        "supervised+aggregation.lr_decay=1",
    ]
    result = compare(tiny_config, methods, [0, 1], out=tmp_path)
    fedpu, *lower, upper = result.rows
    assert fedpu.gap_closed is not None
    for i in range(2):
        best = max(row.accuracies[i] for row in lower)
        expected = (fedpu.accuracies[i] - best) / (upper.accuracies[i] - best)
        assert fedpu.gap_closed[i] == pytest.approx(expected)
        assert max(row.gap_closed[i] for row in lower if row.gap_closed) == 0
    assert "the best of positive-only, labelled-only" in str(terminal_table(result).caption)
    assert "the best of positive-only, labelled-only" in save_comparison(result, tmp_path).read_text()
