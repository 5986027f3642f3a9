"""A run directory: open formats, whole at any moment, and a run that was stopped goes on to the same bits."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import fedpu
from fedpu.applications.experiment import resume, run
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.data import load
from fedpu.errors import FedpuError
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
        always = {"round", "accuracy", "loss", "per_class_accuracy", "risk", "clients", "lr", "bytes", "seconds"}
        assert set(line) == always
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
        labels, truth = file["labels"], load(tiny_config.data).labels.numpy()
    assert set(np.unique(labels)) == set(range(-1, 10))
    assert (labels[labels >= 0] == truth[labels >= 0]).all()
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


def test_a_disk_that_is_full_at_any_write_gives_a_sentence_and_keeps_the_finished_rounds(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, expected = os.fsync, run(tiny_config)
    # Four writes start a run, one begins the rounds, three are a round, three the end.
    for writes in range(4, 17):
        calls: list[int] = []

        def full(descriptor: int, calls: list[int] = calls, writes: int = writes) -> None:
            calls.append(descriptor)
            if len(calls) > writes:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(descriptor)

        out = tmp_path / str(writes)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(FedpuError, match="The disk is full: "):
            run(tiny_config, out=out)
        monkeypatch.setattr(os, "fsync", real)
        assert not list(out.glob(".*.tmp"))
        resumed = resume(out).model.state_dict()
        assert all(torch.equal(resumed[name], value) for name, value in expected.model.state_dict().items()), writes
        RunDirectory.open(out)


DAMAGE = {
    "no archive": ("checkpoint.safetensors", b"damaged"),
    "without metadata": ("checkpoint.safetensors", safetensors.torch.save({"model.x": torch.zeros(1)})),
    "of another network": (
        "checkpoint.safetensors",
        safetensors.torch.save({"model.x": torch.zeros(1)}, {"round": "1"}),
    ),
    "empty rounds": ("rounds.jsonl", b""),
    "rounds in no encoding": ("rounds.jsonl", b"\xff\xfe\x00"),
    "rounds of another kind": ("rounds.jsonl", b"5\n"),
    "empty partition": ("partition.npz", b""),
    "cut partition": ("partition.npz", b"PK\x03\x04 and no more"),
    "configuration": ("config.toml", b"[["),
    "result": ("result.json", b"{"),
}


@pytest.mark.parametrize(("name", "content"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_named(tiny_config: Config, tmp_path: Path, name: str, content: bytes) -> None:
    run(tiny_config.with_("aggregation.rounds=1"), out=tmp_path / "r")
    (tmp_path / "r" / name).write_bytes(content)
    with pytest.raises(FedpuError, match=name.replace(".", r"\.")):
        resume(tmp_path / "r")


def test_a_run_is_not_resumed_on_other_data(tiny_config: Config, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(200, 4)), "y": np.arange(200) % 4}
    np.savez(tmp_path / "own.npz", **arrays)
    own = tiny_config.with_(f"data.name={tmp_path / 'own.npz'}", "labelling.positive=1", "labelling.overlap=true")
    run(own, out=tmp_path / "r", on_round=None)
    (tmp_path / "r/result.json").unlink()
    assert resume(tmp_path / "r").accuracy > 0
    np.savez(tmp_path / "own.npz", x=arrays["x"] * 7, y=arrays["y"])
    with pytest.raises(FedpuError, match="not those that the run"):
        resume(tmp_path / "r")


def test_data_from_python_are_recorded_as_such(tiny_config: Config, tmp_path: Path) -> None:
    data = fedpu.Dataset.from_arrays(np.random.default_rng(0).normal(size=(100, 4)), np.arange(100) % 2, name="mine")
    config = tiny_config.with_("labelling.positive=1", "labelling.overlap=true")
    result = fedpu.run(config, data=data, out=tmp_path / "r")
    assert result.summary["data"] == "mine"
    with pytest.raises(FedpuError, match="'mine', came from Python"):
        resume(tmp_path / "r")
    assert resume(tmp_path / "r", data=data).accuracy == result.accuracy


def test_a_network_with_the_wrong_outputs_is_refused(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("mine_three")
    module.three = lambda shape, classes: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mine_three", module)
    with pytest.raises(FedpuError, match=r"shape \(2, 3\); with these data it should be \(2, 10\)"):
        run(tiny_config.with_("model.name=mine_three:three"))


def test_arrays_from_python_can_be_trained_on(tiny_config: Config) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = rng.normal(size=(300, 4)) + 3 * np.eye(4)[y]
    data = fedpu.Dataset.from_arrays(x, y, client=np.arange(300) // 100)
    config = tiny_config.with_("partition.kind=column", "labelling.positive=1", "aggregation.rounds=20")
    assert fedpu.run(config, data=data).accuracy > 0.8
