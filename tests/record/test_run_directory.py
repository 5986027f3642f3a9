"""A run directory: open formats, whole at any moment, and a run that was stopped goes on to the same bits."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import fedpu
from fedpu.config import Config
from fedpu.errors import FedpuError
from fedpu.experiment import prepare, resume, run
from fedpu.partition import Partition
from fedpu.record import RunDirectory


def test_a_run_leaves_everything_behind(tiny_config: Config, tmp_path: Path) -> None:
    result = run(tiny_config, out=tmp_path / "r")
    directory = RunDirectory.open(tmp_path / "r")
    assert directory.config() == tiny_config
    lines = [json.loads(text) for text in (tmp_path / "r/rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert lines == result.curve
    for line in lines:
        assert set(line) == {"round", "accuracy", "loss", "per_class_accuracy", "risk", "clients", "lr", "seconds"}
        assert set(line["risk"]) == {"positive", "against-negative", "unlabelled", "lent", "clamp", "total"}
        assert len(line["per_class_accuracy"]) == 10
    summary = json.loads((tmp_path / "r/result.json").read_text())
    assert {"method": "fedpu", "rounds": 3, "seed": 0, "accuracy": lines[-1]["accuracy"]}.items() <= summary.items()
    model = safetensors.torch.load_file(tmp_path / "r/model.safetensors")
    assert all(torch.equal(model[name], value) for name, value in result.model.state_dict().items())


def test_the_partition_is_saved_and_can_be_used_again(tiny_config: Config, tmp_path: Path) -> None:
    run(tiny_config.with_("aggregation.rounds=1"), out=tmp_path / "r")
    saved = Partition.load(tmp_path / "r/partition.npz")
    assert np.array_equal(saved.rows, prepare(tiny_config).partition.rows)
    with np.load(tmp_path / "r/partition.npz") as file:
        labels, hidden = file["labels"], prepare(tiny_config).evaluation.hidden.numpy()
    assert set(np.unique(labels)) == set(range(-1, 10))
    assert (labels[labels >= 0] == hidden[labels >= 0]).all()
    other = tiny_config.with_("seed=7", "partition.kind=saved", f"partition.path={tmp_path / 'r/partition.npz'}")
    assert np.array_equal(prepare(other).partition.rows, saved.rows)


@pytest.mark.parametrize("aggregation", ["fedavg", "fedsgd"])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tiny_config: Config, tmp_path: Path, aggregation: str) -> None:
    config = tiny_config.with_(f"aggregation.name={aggregation}", "aggregation.rounds=5")
    whole = run(config, out=tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(line: dict) -> None:
        if line["round"] == 2:
            raise Stop

    with pytest.raises(Stop):
        run(config, out=tmp_path / "r", on_round=stop)
    with (tmp_path / "r/rounds.jsonl").open("a") as file:
        file.write('{"round": 3, "accuracy": 0.1}\n{"round": 4, "accu')  # as a kill between two writes would leave it
    resumed = resume(tmp_path / "r")
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)
    without_times = [{k: v for k, v in line.items() if k != "seconds"} for line in resumed.curve]
    assert without_times == [{k: v for k, v in line.items() if k != "seconds"} for line in whole.curve]
    assert [line["round"] for line in RunDirectory.open(tmp_path / "r").rounds()] == [1, 2, 3, 4, 5]


def test_a_killed_process_resumes_to_the_same_bits(tiny_config: Config, tmp_path: Path) -> None:
    config = tiny_config.with_("aggregation.rounds=60", "engine.workers=2")
    (tmp_path / "c.toml").write_text(config.to_toml())
    command = [sys.executable, "-m", "fedpu", "run", str(tmp_path / "c.toml"), "--out", str(tmp_path / "r")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    rounds = tmp_path / "r/rounds.jsonl"
    while process.poll() is None and (not rounds.exists() or rounds.read_text().count("\n") < 3):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "r/result.json").exists(), "the run was over before it could be killed"
    subprocess.run(
        [sys.executable, "-m", "fedpu", "run", "--resume", str(tmp_path / "r"), "-q"], check=True, capture_output=True
    )
    whole = run(config).model.state_dict()
    resumed = safetensors.torch.load_file(tmp_path / "r/model.safetensors")
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())


def test_resuming_a_finished_run_changes_nothing(tiny_config: Config, tmp_path: Path) -> None:
    first = run(tiny_config, out=tmp_path / "r")
    again = resume(tmp_path / "r")
    assert again.accuracy == first.accuracy
    assert len(again.curve) == 3


def test_a_folder_that_holds_a_run_is_not_overwritten(tiny_config: Config, tmp_path: Path) -> None:
    run(tiny_config.with_("aggregation.rounds=1"), out=tmp_path / "r")
    with pytest.raises(FedpuError, match=r"already holds a run.*--resume"):
        run(tiny_config, out=tmp_path / "r")
    with pytest.raises(FedpuError, match="not a run directory"):
        resume(tmp_path)


def test_a_full_disk_gives_a_sentence_and_keeps_the_finished_rounds(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 5:  # partition, rounds, configuration, two checkpoints
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FedpuError, match=r"The disk is full: .*checkpoint\.safetensors"):
        run(tiny_config, out=tmp_path / "r")
    monkeypatch.setattr(os, "fsync", real)
    assert not list((tmp_path / "r").glob(".*.tmp"))
    assert resume(tmp_path / "r").accuracy == run(tiny_config).accuracy


def test_a_damaged_checkpoint_is_named(tiny_config: Config, tmp_path: Path) -> None:
    run(tiny_config.with_("aggregation.rounds=1"), out=tmp_path / "r")
    (tmp_path / "r/checkpoint.safetensors").write_bytes(b"damaged")
    with pytest.raises(FedpuError, match=r"checkpoint\.safetensors' is damaged"):
        resume(tmp_path / "r")


def test_arrays_from_python_can_be_trained_on(tiny_config: Config) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = rng.normal(size=(300, 4)) + 3 * np.eye(4)[y]
    data = fedpu.Dataset.from_arrays(x, y, client=np.arange(300) // 100)
    config = tiny_config.with_("partition.kind=column", "labelling.positive=1", "aggregation.rounds=20")
    assert fedpu.run(config, data=data).accuracy > 0.8
