"""A run whose numbers are NaN is recorded in valid JSON, and can be read, shown and gone on with."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from command import fedpu
from fedpu.record import RunDirectory
from fedpu.valid_json import json_text

# A step so long that the outputs of a deep network are beyond 32 bits, though its parameters are not.
SETTINGS = [
    "--preset=quickstart",
    "--set=data.name=digits",
    "--set=model.name=mlp",
    f"--set=model.hidden={[32] * 16}",
    "--set=aggregation.rounds=1",
    "--set=aggregation.local_epochs=1",
    "--set=aggregation.batch_size=100",
    "--set=aggregation.lr=1e6",
    "--set=evaluation.validation=0.2",
    "--set=engine.workers=1",
    "--quiet",
]


def strictly(text: str) -> Any:
    """Read JSON as browsers and jq do, which know no NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that has diverged."""
    folder = tmp_path_factory.mktemp("diverged")
    told = strictly(fedpu("compare", *SETTINGS, "--methods=fedpu", "--out=all", "--json", cwd=folder).stdout)
    assert told["rows"][0]["method"] == "fedpu"
    return folder / "all"


def test_every_file_is_valid_json(folder: Path) -> None:
    files = [path for path in folder.rglob("*.json*") if path.is_file()]
    assert {"comparison.json", "rounds.jsonl", "result.json", "manifest.json"} <= {path.name for path in files}
    for path in files:
        for text in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            strictly(text)
    line = strictly((folder / "fedpu-seed0/rounds.jsonl").read_text())
    assert line["loss"] is None
    assert line["validation"] is None
    assert strictly((folder / "fedpu-seed0/result.json").read_text())["loss"] is None


def test_what_was_no_number_is_read_as_nan(folder: Path) -> None:
    line = RunDirectory.open(folder / "fedpu-seed0").rounds()[0]
    assert math.isnan(line["loss"])
    assert math.isnan(line["validation"])


def test_it_can_be_shown_and_resumed(folder: Path) -> None:
    strictly(fedpu("report", "all", "--json", cwd=folder.parent).stdout)
    strictly(fedpu("watch", "all", "--once", "--json", cwd=folder.parent).stdout)
    told = strictly(fedpu("run", "--resume", "all/fedpu-seed0", "--json", cwd=folder.parent).stdout)
    assert told["validation"] is None


def test_files_of_earlier_versions_with_nan_are_read(folder: Path) -> None:
    run, path = folder / "fedpu-seed0", folder / "fedpu-seed0/rounds.jsonl"
    text, manifest = path.read_text(), run / "manifest.json"
    kept = manifest.read_bytes()
    try:
        path.write_text(text.replace('"loss": null', '"loss": NaN'))
        manifest.unlink()
        with pytest.warns(UserWarning, match="read unchecked"):
            assert math.isnan(RunDirectory.open(run).rounds()[0]["loss"])
    finally:
        path.write_text(text)
        manifest.write_bytes(kept)


def test_nothing_else_is_changed() -> None:
    given = {"a": [1.5, float("inf"), {"b": float("-inf")}], "c": "NaN", "d": True, "e": 3}
    assert strictly(json_text(given)) == {"a": [1.5, None, {"b": None}], "c": "NaN", "d": True, "e": 3}
