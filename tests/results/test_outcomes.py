"""The committed outcomes of the paper's tables belong to the presets that the page names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedpu.config import Config

TABLES = Path(__file__).parents[2] / "results/tables"


@pytest.mark.parametrize("file", sorted(TABLES.glob("*.json")), ids=lambda path: path.stem)
def test_an_outcome_is_that_of_its_preset(file: Path) -> None:
    kept = json.loads(file.read_text())
    preset, _, seed = file.stem.rpartition("-seed")
    now = Config.load(preset=preset, overrides=[f"seed={seed}"])
    assert Config.from_dict(kept["config"]).gives_same_as(now)
    number, accuracy = kept["curve"][-1]
    assert number == now.aggregation.rounds == kept["result"]["rounds"]
    assert accuracy == kept["result"]["accuracy"]
    assert set(kept["result"]["versions"]) == {"fedpu", "torch", "python"}
