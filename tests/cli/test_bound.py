"""``fedpu bound``, in one process: numbers, words, a picture, and mistakes."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedpu.cli import main

TINY = ["bound", "--set=data.name=digits", "--set=partition.clients=5", "--set=labelling.positive=2"]


@pytest.fixture
def fedpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["fedpu", *TINY, *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert (exit_.value.code or 0) == code
        told = capsys.readouterr()
        return told.err if code else told.out

    return call


def test_the_numbers_are_those_of_the_data(fedpu) -> None:  # type: ignore[no-untyped-def]
    values = json.loads(fedpu("--json", "--delta", "0.01"))
    assert [row["client"] for row in values["clients"]] == [0, 1, 2, 3, 4]
    assert values["sum"]["labelled"] + values["sum"]["unlabelled"] == 1442
    for row in values["clients"]:
        n = row["labelled"] + row["unlabelled"]
        assert row["complexity"] == 0
        assert row["supervised"] == pytest.approx(math.sqrt(math.log(100) / (2 * n)))
        assert row["bound"] == pytest.approx(math.hypot(row["labelled_deviation"], row["unlabelled_deviation"]))
        assert row["ratio"] == pytest.approx(row["bound"] / row["supervised"])
    assert values["sum"]["bound"] == pytest.approx(math.hypot(*(row["bound"] for row in values["clients"])))
    assert values["mean"]["bound"] == pytest.approx(values["sum"]["bound"] / 5)
    assert values["claimed"] == pytest.approx({"clients": 10**1.5, "pooled": 50**1.5})


def test_words_and_a_picture(fedpu, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text = fedpu("--out", "deep/bound.png")
    for word in (
        "client",
        "P part",
        "U part",
        "supervised",
        "C√C = 31.6×",
        "CK√(CK) = 353.6×",
        "Picture: deep/bound.png",
    ):
        assert word in text
    assert "V part" not in text.splitlines()[1]
    assert np.asarray(Image.open(tmp_path / "deep/bound.png")).std() > 0
    text = fedpu("--vc", "50", "--set=labelling.scenario=case-control", "--out", "bound.svg")
    assert "V part" in text.splitlines()[1]
    assert "says nothing" in text
    assert "<svg" in (tmp_path / "bound.svg").read_text()


def test_a_client_that_labels_all_it_has_gets_a_bound(fedpu) -> None:  # type: ignore[no-untyped-def]
    sets = ["--set=partition.kind=classes", "--set=partition.classes_per_client=2", "--set=labelling.fraction=1"]
    values = json.loads(fedpu(*sets, "--json"))
    assert values["sum"]["unlabelled"] == 0
    assert values["sum"]["unlabelled_deviation"] == 0
    assert values["sum"]["printed_ratio"] is None
    assert "–" in fedpu(*sets)
    assert "Nothing is unlabelled here" in fedpu(*sets, "--out", "bound.png", code=1)


WRONG = {
    "no probability": (["--delta", "1.5"], "δ = 1.5 can't be used"),
    "no dimension": (["--vc", "-1"], "VC dimension of -1"),
    "another method": (["--set", "method.name=supervised"], "method.name = 'supervised'"),
    "no picture": (["--out", "bound.docx"], "must end in .png"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_gets_one_sentence(fedpu, arguments: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    told = fedpu(*arguments, code=1)
    assert told.startswith("error: ")
    assert message in told
    assert len(told.strip().splitlines()) == 1
