"""The tables that people read are those of the committed results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedpu.config import Config

RESULTS = Path(__file__).parents[2] / "results"


def test_pages_show_the_committed_results() -> None:
    done = subprocess.run([sys.executable, RESULTS / "fill_tables.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("run", sorted(RESULTS.glob("*/*/result.json")), ids=lambda path: path.parent.name)
def test_every_result_has_its_curve_and_a_configuration_that_still_loads(run: Path) -> None:
    result = json.loads(run.read_text())
    config = Config.load(run.parent / "config.toml")
    lines = [json.loads(text) for text in (run.parent / "rounds.jsonl").read_text().splitlines()]
    assert len(lines) == result["rounds"] == config.aggregation.rounds
    assert lines[-1]["accuracy"] == result["accuracy"]
    assert result["seed"] == config.seed
