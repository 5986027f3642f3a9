"""The examples run from start to end, in a folder of their own."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_arrays_of_ones_own_with_labels_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_arrays.py"), run_name="__main__")
    told = re.search(r"right on (\d+)%", capsys.readouterr().out)
    assert told is not None
    assert int(told[1]) > 80


def test_methods_are_compared_and_end_in_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "compare_methods.py"), run_name="__main__")
    assert (tmp_path / "runs/compared/report.html").exists()
    assert "supervised:" in capsys.readouterr().out
