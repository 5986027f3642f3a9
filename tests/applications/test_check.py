"""``fedpu check``: what is there, what will work, what is doubtful, and a command that works."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fedpu
from command import fedpu as command
from fedpu.applications.check import check_data


def patients(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 10, rows), "ward": rng.choice(["A", "B"], rows)})
    frame["label"] = np.where(frame["age"] > 50, "ill", "well")
    frame.loc[rng.random(rows) < 0.5, "label"] = None
    frame["client"] = rng.choice(["north", "south", "west"], rows)
    return frame


def doubts(frame: pd.DataFrame) -> str:
    return "\n".join(check_data(fedpu.read(frame)).doubtful)


def test_good_data_are_described_and_the_command_runs(tmp_path: Path) -> None:
    patients().to_csv(tmp_path / "patients.csv", index=False)
    shown = command("check", "patients.csv", cwd=tmp_path).stdout
    assert "200 rows of 3 inputs, 2 classes ('ill', 'well')" in shown
    assert "1 columns of numbers; 1 of words ('ward')" in shown
    assert "3 clients ('north', 'south', 'west')" in shown
    assert "works: Accuracy can't be measured, only the recall" in shown
    assert "doubtful" not in shown
    assert "wrong" not in shown
    found = json.loads(command("check", "patients.csv", "--json", cwd=tmp_path).stdout)
    program, *arguments = shlex.split(found["command"])
    assert program == "fedpu"
    quick = ["--set=aggregation.rounds=1", "--set=engine.workers=1", "--out", "r"]
    assert "estimated accuracy" in command(*arguments, *quick, cwd=tmp_path).stdout


def test_names_that_are_given_are_in_the_command(tmp_path: Path) -> None:
    patients().rename(columns={"label": "what is it"}).assign(id=range(200)).to_csv(tmp_path / "p q.csv", index=False)
    settings = ["--set=data.label=what is it", '--set=data.ignore=["id"]']
    found = json.loads(command("check", "p q.csv", *settings, "--json", cwd=tmp_path).stdout)
    quick = ["--set=method.name=positive-only", "--set=aggregation.rounds=1", "--set=engine.workers=1", "--out", "r"]
    command(*shlex.split(found["command"])[1:], *quick, cwd=tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda frame: frame.assign(label=frame["label"].mask(frame.index == 3, "odd")), "'odd' is seen only once"),
        (
            lambda frame: frame.assign(
                label=frame["label"].mask(frame.index == 3, "odd").mask(frame.index == 4, "rare")
            ),
            "labels 'odd', 'rare' are each seen only once",
        ),
        (lambda frame: frame.assign(label=frame["label"].fillna("unknown")), "class called 'unknown'"),
        (
            lambda frame: frame.assign(label=frame["label"].mask(frame["client"] == "west")),
            "1 client without any label",
        ),
        (
            lambda frame: frame.assign(label=frame["label"].mask(frame["client"] == "west", "ill")),
            "1 client without unlabelled data: 'west'",
        ),
        (lambda frame: frame.assign(id=[f"p{i}" for i in range(len(frame))]), "is it an identifier"),
        (lambda frame: frame.assign(same=7), "'same' has the same value in every training row"),
        (lambda frame: frame[:60], "Fewer than 20 training examples are labelled"),
    ],
)
def test_what_is_doubtful_is_said(change, told) -> None:  # type: ignore[no-untyped-def]
    assert told in doubts(change(patients()))


def test_what_is_wrong_ends_with_a_status(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,b\n1,2\n")
    shown = command("check", "own.csv", "--set=data.client=who", cwd=tmp_path, code=1).stdout
    assert "wrong: own.csv has no column 'label'" in shown
    assert "wrong: own.csv has no column 'who'" in shown
    assert "Next" not in shown


def test_suggested_settings_suit_images_texts_and_full_labels(digits: fedpu.Dataset) -> None:
    large = np.zeros((40, 28, 28), dtype=np.uint8)
    for x, more, model in (
        (large, {}, "paper-cnn"),
        (np.zeros((40, 3, 32, 32), dtype=np.uint8), {}, "colour-cnn"),
        (np.arange(80).reshape(40, 2), {"tokens": True}, "text"),
        (np.eye(40), {}, "mlp"),
    ):
        config = fedpu.config_for(fedpu.Dataset.from_arrays(x, np.arange(40) % 2, **more))
        assert config.model.name == model
        assert config.method.fully_labelled
        assert config.labelling.positive == "as-given"
    assert fedpu.config_for(digits, "seed=3").seed == 3


def test_the_smallest_and_most_lopsided_table_is_understood_and_trained_on(tmp_path: Path) -> None:
    """Seven rows: one is unlabelled, one client has no unlabelled data, and two labels are seen once."""
    rows = ["1,2,cat,north", "2,3,cat,north", "3,4,,north", "1,5,dog,south", "2,2,owl,south", "5,5,dog,south"]
    (tmp_path / "few.csv").write_text("\n".join(["a,b,label,client", *rows, "6,5,dog,south"]))
    found = json.loads(command("check", "few.csv", "--json", cwd=tmp_path).stdout)
    assert found["wrong"] == []
    assert found["there"][0].endswith("3 classes ('cat', 'dog', 'owl'); 1 is unlabelled.")
    assert len(found["doubtful"]) == 3
    quick = ["--set=aggregation.rounds=1", "--set=engine.workers=1", "--out", "r"]
    assert "labelled examples set aside" in command(*shlex.split(found["command"])[1:], *quick, cwd=tmp_path).stdout
    assert (tmp_path / "r/report.html").exists()
