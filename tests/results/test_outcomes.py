"""The committed outcomes of the paper's tables belong to the presets that the page names."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from fedpu.applications.reproduction import outcomes
from fedpu.config import Config
from fedpu.paper import Scale, Table, tables

RESULTS = Path(__file__).parents[2] / "results"
TABLES, REDUCED = RESULTS / "tables", RESULTS / "tables-quick"


@pytest.mark.parametrize("file", sorted([*TABLES.glob("*.json"), *REDUCED.glob("*.json")]), ids=lambda path: path.stem)
def test_an_outcome_is_that_of_its_preset(file: Path) -> None:
    kept = json.loads(file.read_text())
    preset, _, seed = file.stem.rpartition("-seed")
    now = Config.load(preset=preset, overrides=[f"seed={seed}"])
    assert Config.from_dict(kept["config"]).gives_same_as(now)
    number, accuracy = kept["curve"][-1]
    assert number == now.aggregation.rounds == kept["result"]["rounds"]
    assert accuracy == kept["result"]["accuracy"]
    assert set(kept["result"]["versions"]) - {"kernels"} == {"fedpu", "torch", "python"}


@pytest.mark.parametrize("table", [table for table in tables() if table.label != "table:comp"], ids=lambda t: t.label)
def test_fedpu_is_above_baseline_1_as_the_notes_say(table: Table) -> None:
    # Every row of the CIFAR-10 tables has been run at their reduced scale only.
    scale: Scale
    scale, folder = ("quick", REDUCED) if "quick" in table.on_request else ("cpu", TABLES)
    (measured,) = outcomes([table], scale, [0], folder)
    last = 8 if table.settings.get("aggregation", {}).get("name") == "fedsgd" else 1  # evaluations, every five rounds
    for row in measured.rows:
        ends = {
            cell.cell.column.key: fmean(accuracy for _, accuracy in cell.curves[0][-last:])
            for cell in row.cells
            if cell.cell.column.available and cell.cell.published is not None
        }
        assert min(end for key, end in ends.items() if key.startswith("fedpu")) > ends["positive-only"], row.row.name
