"""The examples with data of one's own, run as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedpu
from command import fedpu as command

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_five_lines_on_a_csv_file_give_a_model_and_predictions(tmp_path: Path) -> None:
    script = EXAMPLES / "own_table.py"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "'barolo'" in done.stdout
    summary = json.loads((tmp_path / "runs/wines/result.json").read_text())
    assert summary["measured_on"]["is_accuracy"] is False
    assert summary["estimates"]["accuracy"] is not None
    assert fedpu.load_model(tmp_path / "runs/wines").predict(tmp_path / "new.csv").shape == (
        len((tmp_path / "new.csv").read_text().splitlines()) - 1,
    )
    assert "3 clients ('north', 'south', 'west')" in command("check", "wines.csv", cwd=tmp_path).stdout


@pytest.mark.parametrize(("name", "rounds", "least"), [("estimator", 20, 0.5), ("texts", 4, 0.5)])
def test_the_others_learn_something(name: str, rounds: int, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    module = __import__(name)
    assert module.main(rounds=rounds) > least
