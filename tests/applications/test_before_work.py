"""Mistakes are told before anything is trained or written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fedpu
from command import fedpu as command
from fedpu.applications.experiment import run_prepared
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.data.files import File, FileSet, Origin
from fedpu.errors import ConfigError, FedpuError, TrainingError

X, Y = np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32), np.arange(90) % 3
PARTLY = np.where(np.arange(90) % 2, Y, -1)
QUICK = ("aggregation.rounds=2", "engine.workers=1", "model.name=mlp", "model.hidden=[4]")

DIVERGING = (
    "method.name=positive-only",
    "aggregation.lr=1e6",
    "aggregation.weight_decay=1e6",
    "aggregation.local_epochs=20",
)


def partly(*more: str) -> tuple[fedpu.Dataset, Config]:
    data = fedpu.Dataset.from_arrays(X, PARTLY, client=np.arange(90) % 4)
    return data, fedpu.config_for(data, *QUICK, *more)


def test_every_method_of_a_comparison_is_checked_before_the_first_trains(tmp_path: Path) -> None:
    data, config = partly()
    started: list[str] = []

    def on_run(method: str, seed: int):  # type: ignore[no-untyped-def]
        started.append(method)
        return lambda line: None

    wrong = ["fedpu", "positive-only", "aligned+augmentation.strong=['affine']"]
    with pytest.raises(FedpuError, match=r"aligned\+.* \(seed 0\) can't be run, and nothing was trained"):
        fedpu.compare(config, wrong, [0], data=data, out=tmp_path / "c", on_run=on_run)
    assert not started
    assert not (tmp_path / "c").exists()


def test_a_method_that_needs_every_label_is_left_out_with_a_note() -> None:
    data, config = partly()
    notes: list[str] = []
    found = fedpu.compare(config, "positive-only,supervised", [0], data=data, on_note=notes.append)
    assert [row.method for row in found.rows] == ["positive-only"]
    assert found.left_out == ["supervised"]
    assert any("Left out: supervised, which needs every label" in note for note in notes)
    assert found.to_dict()["measured_on"]["is_accuracy"] is False
    with pytest.raises(ConfigError, match="holds unlabelled examples"):
        fedpu.compare(config, "supervised", [0], data=data)


def test_the_usual_comparison_works_on_a_users_own_partly_labelled_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=X, y=PARTLY, client=np.arange(90) % 4)
    settings = [f"--set={setting}" for setting in QUICK]
    printed = command("compare", "--data", "own.npz", *settings, "--out", "c", "--json", cwd=tmp_path)
    rows = json.loads(printed.stdout)["rows"]
    assert len(rows) == 3
    assert "Left out: supervised" in printed.stderr


def test_a_start_that_failed_does_not_block_its_folder(tmp_path: Path) -> None:
    data, config = partly("method.name=positive-only")
    with pytest.raises(ConfigError, match="takes images"):
        fedpu.run(config.with_("model.name=paper-cnn"), data=data, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()
    prepared = prepare(config, data)
    broken = config.with_(*DIVERGING)
    with pytest.raises(TrainingError):
        run_prepared(broken, prepared, tmp_path / "r")
    assert not (tmp_path / "r" / "config.toml").exists()
    run_prepared(config, prepared, tmp_path / "r")
    with pytest.raises(FedpuError, match="already holds a run"):
        fedpu.run(config, data=data, out=tmp_path / "r")
    assert (tmp_path / "r" / "result.json").exists()


def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    data, config = partly(*DIVERGING)
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "notes.txt").write_text("mine")
    with pytest.raises(TrainingError):
        fedpu.run(config, data=data, out=tmp_path / "r")
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["notes.txt"]


def test_token_ids_and_amounts_are_not_mixed_up() -> None:
    ids = fedpu.Dataset.from_arrays(np.arange(180).reshape(90, 2), Y, tokens=True)
    config = fedpu.config_for(ids, *QUICK[:2])
    for setting, told in (
        ("model.name=mlp", "The inputs are token ids, and model.name = 'mlp' takes amounts"),
        ("model.vocabulary=100", "token id 179, and the model knows ids up to 99. Set model.vocabulary to 180"),
        ('augmentation.weak=["noise"]', "token ids, which no transform"),
    ):
        with pytest.raises(ConfigError, match=told):
            fedpu.run(config.with_(setting), data=ids)
    amounts = fedpu.Dataset.from_arrays(X, Y)
    with pytest.raises(ConfigError, match="'text' takes token ids, and these inputs are amounts"):
        fedpu.run(fedpu.config_for(amounts, *QUICK[:2], "model.name=text"), data=amounts)


def test_a_text_model_learns_from_words_that_tell_the_class() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    ids = rng.integers(10, 60, (300, 12))
    ids[:, 3] = 1 + labels
    data = fedpu.Dataset.from_arrays(ids, np.where(rng.random(300) < 0.5, labels, -1), tokens=True, test_fraction=0.2)
    quick = ("aggregation.rounds=12", "aggregation.lr=0.3", "engine.workers=1", "method.name=labelled-only")
    config = fedpu.config_for(data, *quick)
    result = fedpu.run(config, data=data)
    assert result.accuracy > 0.9
    assert result.model[0].embedding.weight.dtype == torch.float32


def test_a_download_is_announced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def deliver(names: tuple[str, ...], folder: Path) -> None:
        (folder / "a.bin").write_bytes(b"a")

    sha = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    FileSet("letters", (File("a.bin", sha),), (Origin("a shelf", deliver),), "as they are").fetch(tmp_path)
    assert capsys.readouterr().err == "Fetching a.bin of 'letters' from a shelf …\n"
