"""The example of a user's own method, partition and aggregation: checked, run on every engine, stopped and resumed."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import fedpu
from fedpu.config import Config
from fedpu.engine import ENGINES
from fedpu.testing import check_aggregation, check_method, check_partition

FOLDER = Path(__file__).parents[2] / "examples"
SETTINGS = [
    "data.name=digits",
    "labelling.positive=4",
    "labelling.overlap=true",
    "model.name=mlp",
    "model.hidden=[16]",
    "method.name=mine:Taught",
    "method.threshold=0.2",
    "partition.kind=mine:Unequal",
    "partition.clients=3",
    "aggregation.name=mine:TrimmedMean",
    "aggregation.trim=0.4",
    "aggregation.rounds=3",
    "aggregation.batch_size=50",
    "aggregation.lr=0.05",
    'augmentation.weak=["shift"]',
    'augmentation.strong=["shift", "noise"]',
    "augmentation.shift=1",
    "engine.workers=1",
]


@pytest.fixture(autouse=True)
def _users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user stands in the folder of the file, which other processes find, too."""
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=":")
    monkeypatch.chdir(FOLDER)


@pytest.fixture
def mine() -> Any:
    import mine  # type: ignore[import-not-found]

    return mine


def test_they_keep_every_promise(mine: Any) -> None:
    check_method(mine.Taught)
    check_method(mine.Taught(memory=0.9, threshold=0))
    check_partition(mine.Unequal)
    check_partition(mine.Unequal(clients=300))
    check_aggregation(mine.TrimmedMean)


def test_the_method_has_a_teacher_two_views_and_a_state_in_sixty_lines(mine: Any) -> None:
    assert len(inspect.getsource(mine.Taught).splitlines()) <= 60
    config = Config.load(overrides=SETTINGS)
    line = fedpu.run(config).curve[-1]
    assert line["risk"]["taught"] > 0
    assert line["risk"]["given"] > 0


def model(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load((folder / "model.safetensors").read_bytes())


def test_it_runs_on_both_engines_of_one_machine_and_resumes(tmp_path: Path) -> None:
    config = Config.load(overrides=SETTINGS)
    fedpu.run(config, out=tmp_path / "local")
    fedpu.run(config.with_("engine.name=reference"), out=tmp_path / "reference")
    for name, value in model(tmp_path / "reference").items():
        torch.testing.assert_close(model(tmp_path / "local")[name], value, rtol=2e-5, atol=2e-5)

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedpu.run(config, out=tmp_path / "stopped", on_round=stop)
    fedpu.resume(tmp_path / "stopped")
    whole, gone_on = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("local", "stopped"))
    assert whole == gone_on


@pytest.mark.nodes
def test_it_runs_on_flower_and_goes_on_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")
    pytest.importorskip("ray", reason="Flower's simulation is not installed: pip install 'fedpu[flower]'")
    config = Config.load(overrides=SETTINGS)
    expected = fedpu.run(config).model.state_dict()

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedpu.run(config.model_copy(update={"engine": ENGINES["flower"]()}), out=tmp_path / "run", on_round=stop)
    # On Flower, too, it could go on: tests/engine/flower has that, in a simulation that runs already.
    fedpu.resume(tmp_path / "run", engine=config.engine)
    for name, value in model(tmp_path / "run").items():
        torch.testing.assert_close(value, expected[name], rtol=2e-5, atol=2e-5)
