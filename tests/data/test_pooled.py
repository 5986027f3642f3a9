"""Training and test data pooled and cut anew."""

from __future__ import annotations

import pytest
import torch

from fedpu.applications.experiment import resume, run
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.data import DataSettings, load
from fedpu.errors import ConfigError


def test_every_example_is_in_one_of_the_three_parts() -> None:
    whole = load(DataSettings(name="digits"))
    data = load(DataSettings(name="digits", pooled=(300, 200)))
    assert data.validation is not None
    parts = [data.validation, (data.test_inputs, data.test_labels), (data.inputs, data.labels)]
    assert [len(labels) for _, labels in parts] == [300, 200, len(whole.labels) + len(whole.test_labels) - 500]

    def rows(inputs: torch.Tensor, labels: torch.Tensor) -> list[tuple[float, ...]]:
        return [(*row, label) for row, label in zip(inputs.flatten(1).tolist(), labels.tolist(), strict=True)]

    before = rows(whole.inputs, whole.labels) + rows(whole.test_inputs, whole.test_labels)
    assert sorted(row for part in parts for row in rows(*part)) == sorted(before)
    assert data.normalisation == whole.normalisation
    assert all(len(labels.unique()) == 10 for _, labels in parts), "in a random order"


def test_it_is_cut_in_the_same_way_whatever_the_seed(tiny_config: Config) -> None:
    config = tiny_config.with_("data.pooled=[100, 200]")
    one, other = prepare(config), prepare(config.with_("seed=1"))
    assert torch.equal(one.test_set.labels, other.test_set.labels)
    assert one.validation_set is not None
    assert len(one.validation_set.labels) == 100


def test_too_large_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.pooled = \[1000, 1000\] leaves nothing to train on"):
        load(DataSettings(name="digits", pooled=(1000, 1000)))


def test_the_learning_rate_follows_the_validation_set_and_a_resumed_run_goes_on_alike(
    tiny_config: Config, tmp_path
) -> None:
    config = tiny_config.with_(
        "data.pooled=[100, 200]",
        "aggregation.rounds=8",
        "aggregation.lr=3.0",
        "aggregation.lr_decay=1.0",
        "aggregation.lr_patience=2",
        "method.name=positive-only",
    )
    curve = run(config, out=tmp_path / "whole").curve
    losses = [line["validation_set"]["loss"] for line in curve]
    lr, best, waited = 3.0, float("inf"), 0
    for line, loss in zip(curve, losses, strict=True):
        assert line["lr"] == pytest.approx(lr)
        best, waited = (loss, 0) if loss < best else (best, waited + 1)
        if waited == 2:
            lr, waited = lr / 3, 0
    assert curve[-1]["lr"] < 3.0, "it was lowered at least once"

    class Stopped(Exception):
        pass

    def stop(line) -> None:
        if line["round"] == 5:
            raise Stopped

    with pytest.raises(Stopped):
        run(config, out=tmp_path / "cut", on_round=stop)
    again = resume(tmp_path / "cut").curve
    assert [line["lr"] for line in again] == [line["lr"] for line in curve]
    assert again[-1]["accuracy"] == curve[-1]["accuracy"]


def test_a_schedule_that_follows_nothing_is_refused(tiny_config: Config) -> None:
    with pytest.raises(ConfigError, match=r"set data\.pooled or evaluation\.validation"):
        run(tiny_config.with_("aggregation.lr_patience=2"))
    held = run(tiny_config.with_("aggregation.lr_patience=1", "evaluation.validation=0.2", "aggregation.lr=2.0"))
    assert held.curve[0]["lr"] == 2.0
