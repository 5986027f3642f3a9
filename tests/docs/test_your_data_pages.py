"""Every block of docs/your-data.md and docs/models.md is run, in order, in a folder with such a table."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from command import fedpu as command
from patients import write_patients

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```$", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["your-data.md", "models.md"])
def test_every_block_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = write_patients(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for kind, text in blocks(page):
        if kind == "csv":
            assert text.splitlines()[0].split(",") == columns
        elif kind == "python":
            exec(compile(text, page, "exec"), names)
        else:
            for line in text.splitlines():
                program, *arguments = shlex.split(line, comments=True)
                assert program == "fedpu"
                more = ["--set=aggregation.rounds=5"] if arguments[0] == "run" else []
                command(*arguments, *more, cwd=tmp_path)


def test_links_lead_somewhere() -> None:
    for page in ("your-data.md", "models.md"):
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / page).read_text("utf-8")):
            assert (DOCS / link).exists(), link
