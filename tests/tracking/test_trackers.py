"""What other tools are told of a run is read back with those tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedpu.applications import experiment
from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.record import RunDirectory
from fedpu.tracking import TRACKERS, numbers


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]


def stop_after(rounds: int) -> Any:
    def on_round(line: dict[str, Any]) -> None:
        if line["round"] == rounds:
            raise KeyboardInterrupt

    return on_round


def stopped_and_resumed(config: Config, folder: Path) -> list[dict[str, Any]]:
    """Run one round, stop, and go on to the end."""
    with pytest.raises(KeyboardInterrupt):
        experiment.run(config, out=folder, on_round=stop_after(1))
    experiment.resume(folder)
    return lines_of(folder)


def test_tensorboard_reads_every_number_of_a_run_that_was_stopped_and_resumed(
    tiny_config: Config, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = stopped_and_resumed(tiny_config.with_("record.trackers=['tensorboard']"), tmp_path / "r")
    events = EventAccumulator(str(tmp_path / "r/tensorboard"))
    events.Reload()
    for name, value in numbers(lines[-1]).items():
        found = events.Scalars(name)
        assert [event.step for event in found] == [1, 2, 3]
        assert found[-1].value == pytest.approx(value)
    assert events.Tags()["tensors"] == ["configuration/text_summary"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The ``noload``")
def test_mlflow_reads_every_number_of_a_run_that_was_stopped_and_resumed(tiny_config: Config, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    lines = stopped_and_resumed(tiny_config.with_("record.trackers=['mlflow']"), tmp_path / "r")
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'r/mlflow.db'}")
    experiment_found = client.get_experiment_by_name("fedpu")
    (run,) = client.search_runs([experiment_found.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["aggregation.rounds"] == "3"
    history = {
        key: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)] for key in ["accuracy"]
    }
    assert history["accuracy"] == [(line["round"], pytest.approx(line["accuracy"])) for line in lines]
    assert run.data.metrics["risk/total"] == pytest.approx(lines[-1]["risk"]["total"])


def test_trackers_change_nothing_of_the_run(tiny_config: Config, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    tracked = tiny_config.with_("record.trackers=['tensorboard']")
    assert tracked.gives_same_as(tiny_config)
    experiment.run(tiny_config, out=tmp_path / "a")
    experiment.run(tracked, out=tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    assert RunDirectory.open(tmp_path / "b").config() == tracked


def test_a_tracker_that_is_unknown_or_not_installed_is_refused_before_anything_is_written(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="'wandb' is neither"):
        tiny_config.with_("record.trackers=['wandb']")
    monkeypatch.setattr(TRACKERS["mlflow"], "needs", "a_module_that_nobody_has")
    with pytest.raises(ConfigError, match=r"pip install 'fedpu\[mlflow\]'"):
        experiment.run(tiny_config.with_("record.trackers=['mlflow']"), out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    with pytest.raises(ConfigError, match="needs a run directory"):
        experiment.run(tiny_config.with_("record.trackers=['tensorboard']"))


def test_numbers_of_a_line_are_found_wherever_they_are() -> None:
    line = {
        "round": 2,
        "accuracy": 0.5,
        "risk": {"total": 1.0, "odd": float("nan")},
        "priors": {"values": [[0.1]], "mean_absolute_error": 0.2},
        "per_class_accuracy": [0.25, None],
        "clients": 3,
        "flag": True,
    }
    assert numbers(line) == {
        "accuracy": 0.5,
        "risk/total": 1.0,
        "priors/mean_absolute_error": 0.2,
        "clients": 3.0,
        "per_class_accuracy/0": 0.25,
    }
