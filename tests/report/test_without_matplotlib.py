"""matplotlib is an extra: a comparison does without its pictures, and who asks for one is told before any work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from command import fedpu
from fedpu.applications.comparison import compare
from fedpu.config import Config
from fedpu.report import save_comparison


@pytest.fixture(autouse=True)
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    # A module that is None here is neither found nor imported, as if it were not installed.
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_a_comparison_has_its_table_and_its_page(tiny_config: Config, tmp_path: Path) -> None:
    page = save_comparison(compare(tiny_config, ["positive-only", "supervised"], [0], out=tmp_path), tmp_path)
    assert "<figure" in page.read_text()
    assert "| supervised |" in (tmp_path / "comparison.md").read_text()
    assert not list(tmp_path.glob("curves.*"))


@pytest.mark.parametrize(
    "command",
    [
        ("show", "--preset=quickstart", "--save=held.png"),
        ("priors", "--preset=quickstart", "--picture=held.png"),
        ("bound", "--preset=quickstart", "--out=held.png"),
        ("bench", "--save=held.png"),
    ],
)
def test_who_asks_for_a_picture_is_told_what_to_install_before_any_work(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    told = fedpu(*command, cwd=tmp_path, code=1)
    assert "To draw held.png, install matplotlib: pip install 'fedpu[pictures]'." in told.stderr
    assert "round" not in told.stderr
    told = fedpu(*command[:-1], command[-1].replace(".png", ".gif"), cwd=tmp_path, code=1)
    assert "the name must end in .png, .svg, .pdf" in told.stderr
