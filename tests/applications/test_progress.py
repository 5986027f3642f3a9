"""The bar goes to its end, in a terminal and in a notebook, and from where a run was."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import fedpu
from fedpu.applications.progress import bar_class, round_bar
from fedpu.config import Config


def test_a_run_from_python_shows_its_rounds(tiny_config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    result = fedpu.run(tiny_config, progress=True, on_round=seen.append)
    last = capsys.readouterr().err.replace("\r", "\n").strip().splitlines()[-1]
    assert last.startswith("fedpu: 100%")
    assert "3/3" in last
    assert f"accuracy={result.accuracy:.2%}" in last
    assert len(seen) == 3
    fedpu.run(tiny_config)
    assert capsys.readouterr().err == ""


def test_a_comparison_shows_one_bar_per_run(tiny_config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    fedpu.compare(tiny_config, ["fedpu", "supervised"], [0], progress=True)
    lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
    assert [line.split(":")[0] for line in lines if "3/3" in line][-1] == "supervised, seed 0"


def test_the_bar_of_a_resumed_run_begins_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    with round_bar("resumed", 10) as on_round:
        on_round({"round": 8})
        on_round({"round": 9, "accuracy": 0.5})
    assert "9/10" in capsys.readouterr().err


def test_a_notebook_without_widgets_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class ZMQInteractiveShell:
        pass

    notebook = ModuleType("IPython")
    notebook.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr("fedpu.applications.progress.find_spec", lambda name: None)
    from tqdm import tqdm

    assert bar_class() is tqdm
    monkeypatch.setattr("fedpu.applications.progress.find_spec", lambda name: object())
    assert bar_class().__module__ == "tqdm.notebook"
