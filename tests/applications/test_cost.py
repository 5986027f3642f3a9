"""The cost of a run is measured on the real thing, and beside it the loop that anybody would write."""

from __future__ import annotations

import pytest
import torch

from fedpu.applications.bench import alike
from fedpu.applications.cost import OURS, PLAIN, SUPERVISED, cost
from fedpu.applications.made_up import MadeUp, read_shape
from fedpu.applications.prepared import prepare
from fedpu.applications.training import job_of
from fedpu.applications.yardstick import PlainClients
from fedpu.config import Config
from fedpu.engine import ClientTrainer
from fedpu.engine.pool import Piece
from fedpu.errors import ConfigError, FedpuError
from fedpu.report.bench import cost_markdown, cost_notes, cost_table
from fedpu.round import Broadcast, Work

SMALL = MadeUp((1, 8, 8), 120, 40)


def test_a_configuration_is_measured_beside_plain_pytorch() -> None:
    config = Config.load(overrides=["model.name=mlp", "aggregation.rounds=30", "evaluation.every=7"])
    found = cost(alike(config, 3).with_("engine.workers=2"), SMALL, repeats=2, plain=True)
    assert [one.name for one in found.contestants] == [OURS, SUPERVISED, PLAIN]
    assert all(len(one.seconds) == 2 and one.memory_mb > 50 for one in found.contestants)
    assert (found.clients, found.examples, found.shape, found.workers) == (3, 120, (1, 8, 8), 2)
    assert (found.rounds, found.evaluations) == (30, 5), "after 7, 14, 21, 28 and 30 rounds"
    expected = 30 * found.contestants[0].median + 5 * found.evaluation_seconds
    assert found.expected_seconds == pytest.approx(expected)
    told = found.to_dict()
    assert told["times_plain"] == found.contestants[2].best / found.contestants[1].best
    assert told["contestants"][0]["examples_per_second"] == 120 / found.contestants[0].best
    assert cost_table(found).row_count == 3
    assert "30 rounds" in cost_notes(found)[0]
    assert cost_markdown([found, found]).count("plain PyTorch, 2 × 1 thread") == 2


def test_a_mistake_in_the_configuration_is_told_as_such() -> None:
    config = Config.load(overrides=["partition.clients=3", "labelling.positive=1"])
    with pytest.raises(FedpuError, match="some class would be labelled by nobody"):
        cost(config, SMALL, repeats=1, plain=False)


def test_the_yardstick_computes_what_the_reference_engine_does() -> None:
    """One step on all data: its order has no meaning, and both must come to the same parameters."""
    config = alike(Config.load(overrides=["model.name=mlp", "method.name=supervised"]), 2)
    job = job_of(config, prepare(config, SMALL.dataset()).federation)
    plain = PlainClients.of(job)
    work = Work(client=1, round=0, lr=0.1, batch_size=None, momentum=0.5, weight_decay=0.01)
    own = job.federation.span(1)
    plain.labels[own] = job.federation.labels[own]
    start = {name: value.clone() for name, value in job.initial_model().state_dict().items()}
    sums = plain.weighted_sum(job.initial_model(), start, [work])
    [(update, _)] = ClientTrainer(job, torch.device("cpu")).update(Broadcast(start), Piece([work], {}, each=True))
    for name, value in update.model.items():
        torch.testing.assert_close(sums[name] / update.examples, value, rtol=1e-5, atol=1e-6)


def test_shapes_are_read_as_people_write_them() -> None:
    assert read_shape("cifar10") == (3, 32, 32)
    assert read_shape("3x64X48") == (3, 64, 48)
    with pytest.raises(ConfigError, match="such as 3x64x64"):
        read_shape("2x9x9")
