"""The notebook runs from its first cell to its last, in a real kernel, and its bars go to their ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).parents[2] / "examples/tour.ipynb"


def test_the_tour_runs_in_a_notebook(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    bars = "".join(output.text for output in outputs if output.get("name") == "stderr")
    bars += "".join(str(output.data) for output in outputs if output.get("output_type") == "display_data")
    assert re.search(r"accuracy \d+\.\d%", printed)
    assert "['flu' 'gout' 'well']" in printed
    assert bars.count("8/8") >= 4, "one bar for the run, one for each of the compared methods"
    assert "20/20" in bars
    assert not any(output.output_type == "error" for output in outputs)
    assert (tmp_path / "runs/clinics/report.html").exists()
