"""Where the fast path can't be taken, the command says so and why: once, on standard error, and not as an error."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedpu.cli import main

MODULE = """
import torch.nn.functional as F
from torch import nn

import fedpu


class Halved(fedpu.Method):
    uses_unlabelled = False

    def objective(self, forward, batch, constants):
        return {"total": F.cross_entropy(forward(batch.inputs / 2), batch.labels)}


class Whole(fedpu.Method):
    uses_unlabelled = False

    def objective(self, forward, batch, constants):
        return {"total": F.cross_entropy(forward(batch.inputs), batch.labels)}


class Broken(fedpu.Method):
    def objective(self, forward, batch, constants):
        raise fedpu.FedpuError("It does not work.")


def normed(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))
"""
TINY = ["data.name=digits", "partition.clients=3", "labelling.positive=4", "labelling.overlap=true", "model.name=mlp"]
TINY += ["aggregation.rounds=1", "aggregation.batch_size=250", "engine.workers=1"]
SLOW = "Clients are trained one after another, which is slower and gives the same model: "
INPUTS = f"{SLOW}the method calls the network on inputs of its own making."

Command = Callable[..., tuple[str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    (tmp_path / "users_slow.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "users_slow", raising=False)
    importlib.invalidate_caches()

    def run(name: str, *arguments: str, settings: tuple[str, ...] = (), code: int = 0) -> tuple[str, str]:
        chosen = [f"--set={setting}" for setting in (*TINY, *settings)]
        monkeypatch.setattr(sys, "argv", ["fedpu", name, *chosen, *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == code, captured.err
        return captured.out, captured.err

    return run


def test_a_run_says_that_the_method_makes_inputs(command: Command) -> None:
    out, told = command("run", "--json", "--out", "r", settings=("method.name=users_slow:Halved",))
    assert told.splitlines().count(INPUTS) == 1
    assert json.loads(out)["rounds"] == 1
    _, told = command("run", "--quiet", "--out", "q", settings=("method.name=users_slow:Halved",))
    assert told == ""


def test_a_run_says_which_layer_has_no_stacked_form(command: Command) -> None:
    _, told = command("run", "--out", "r", settings=("model.name=users_slow:normed",))
    assert f"{SLOW}there is no fast form of the network's layer BatchNorm1d(8" in told
    _, told = command("run", "--out", "p", "--engine", "reference", settings=("model.name=users_slow:normed",))
    assert SLOW not in told


def test_a_comparison_says_it_once(command: Command) -> None:
    methods = "users_slow:Halved,users_slow:Whole,fedpu"
    _, told = command("compare", "--methods", methods, "--seeds", "2", "--out", "c")
    assert [line for line in told.splitlines() if line.startswith(SLOW)] == [INPUTS]


def test_a_method_that_can_not_be_tried_out_is_told_of_where_it_is_trained(command: Command) -> None:
    _, told = command("run", "--out", "r", settings=("method.name=users_slow:Broken",), code=1)
    assert told.splitlines() == ["error: It does not work."]
