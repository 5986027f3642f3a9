"""The soak makes real trials, and sees it when a promise is broken."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "soak"
MODULES = ("tally", "runs", "inputs", "kills", "damages", "hostile")


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The soak's modules by name; what they change of this process is put back."""
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")
    import importlib

    monkeypatch.syspath_prepend(str(FOLDER))
    before = os.getcwd()
    yield {name: importlib.import_module(name) for name in MODULES}
    os.chdir(before)
    for name in MODULES:
        sys.modules.pop(name)


def tried(soak: dict[str, Any], kind: str, count: int, folder: Path) -> Any:
    tally = soak["tally"].Tally("")
    trials = getattr(soak[kind], kind)(tally, np.random.default_rng(0), folder)
    for _ in range(count):
        next(trials)
    return tally


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside other threads: the child of a kill
@pytest.mark.parametrize(("kind", "count"), [("kills", 1), ("damages", 20), ("hostile", 3), ("inputs", 4)])
def test_a_few_trials_break_no_promise(soak: dict[str, Any], tmp_path: Path, kind: str, count: int) -> None:
    tally = tried(soak, kind, count, tmp_path)
    assert tally.findings == []
    assert tally.tried >= count


def test_damage_that_nobody_looks_for_is_found(
    soak: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedpu.record import run_directory

    monkeypatch.setattr(run_directory, "checked", lambda path: run_directory.Manifest())
    tally = tried(soak, "damages", 40, tmp_path)
    assert any("went on to another end without a word" in finding for finding in tally.findings)


def test_a_traceback_and_a_hang_are_findings(soak: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = soak["inputs"].guarded
    assert guarded(lambda: None) == ("worked", None)
    assert guarded(lambda: [][1]) == ("a traceback", "IndexError: list index out of range")
    monkeypatch.setattr(soak["inputs"], "LONGEST", 1)

    def hang() -> None:
        while True:
            pass

    end, finding = guarded(hang)
    assert end == "hung"
    assert "1 seconds" in finding


def test_the_report_names_what_was_found(soak: dict[str, Any], tmp_path: Path) -> None:
    tally = soak["tally"].Tally("files are whole")
    tally.add("a sentence")
    tally.add("silent", "checkpoint.safetensors: cut")
    soak["tally"].save({"damaged run files": tally}, 7, 90.0, tmp_path)
    page = (tmp_path / "soak.md").read_text()
    assert "| damaged run files | 2 | 1 a sentence, 1 silent | 1 |" in page
    assert "- damaged run files: checkpoint.safetensors: cut" in page
    assert json.loads((tmp_path / "soak.json").read_text())["trials"]["damaged run files"]["tried"] == 2
