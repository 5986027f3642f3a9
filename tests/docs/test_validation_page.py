"""Every command of docs/validation.md runs, in order, in one folder."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from fedpu.applications.tuning import HELD_OUT
from fedpu.cli import main

PAGE = (Path(__file__).parents[2] / "docs/validation.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_chooses_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, text in BLOCKS:
        if kind == "toml":
            (tmp_path / text.split()[1]).write_text(text)
            continue
        assert kind == "sh"
        for line in text.splitlines():
            monkeypatch.setattr(sys, "argv", [*shlex.split(line), "--quiet", "--set", "engine.workers=1"])
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code, line
    chosen = tomllib.loads((tmp_path / "chosen/best.toml").read_text())
    assert chosen["aggregation"]["lr"] in (0.03, 0.1, 0.3)
    assert chosen["evaluation"]["validation"] == 0
    assert (tmp_path / "chosen/tune.json").exists()


def test_the_page_says_what_is_so() -> None:
    assert HELD_OUT == 0.2
    assert "a fifth of every client's data held out" in PAGE
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / link).exists(), link
