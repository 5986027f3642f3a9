"""Every block of docs/extending.md is written to a file or run, in order, in one folder."""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedpu import registry
from fedpu.augmentation import TRANSFORMS
from fedpu.cli import main
from fedpu.config.sections import SECTIONS
from fedpu.data import FUNCTIONS, READERS
from fedpu.priors.estimators import ESTIMATORS
from fedpu.risk import SURROGATES
from fedpu.tracking import TRACKERS

PAGE = (Path(__file__).parents[2] / "docs/extending.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = {match[1]: text for _, text in BLOCKS if (match := re.match(r"# (\S+\.\w+)\n", text))}
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with all files, and with the package that they are installed as."""
    folder = tmp_path_factory.mktemp("extending")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    points = tomllib.loads(FILES["pyproject.toml"])["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in points.items()]
    info = folder / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(folder), *sys.path])
        patch.chdir(folder)
        importlib.invalidate_caches()
        yield folder
        for name in FILES:
            sys.modules.pop(name.removesuffix(".py"), None)


def test_every_block_is_a_file_or_a_command() -> None:
    assert len(BLOCKS) == len(FILES) + sum(kind == "sh" for kind, _ in BLOCKS)
    assert {kind for kind, _ in BLOCKS} == {"python", "toml", "sh"}


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_runs(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(line)
    if program == "python":
        runpy.run_path(str(folder / arguments[0]))
        return
    assert program == "fedpu"
    quiet = ["--quiet", "--out", str(folder / f"run-{COMMANDS.index(line)}"), "--set", "engine.workers=1"]
    if "engine.name" in line:
        quiet = quiet[:3]
    monkeypatch.setattr(sys, "argv", ["fedpu", *arguments, *quiet])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def test_every_kind_has_a_row_with_its_entry_point_and_a_file() -> None:
    registries = [section.variants for section in SECTIONS.values()]
    registries += [TRANSFORMS, FUNCTIONS, READERS, ESTIMATORS, SURROGATES, TRACKERS]
    groups = {found.group for found in registries if found.group}
    assert all(isinstance(found, registry.Registry) for found in registries)
    table = PAGE.partition("| --- |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(fedpu\.\w+)` \|$", table, re.MULTILINE)) == groups


def test_links_within_the_page_and_to_others_lead_somewhere() -> None:
    headings = {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for text in re.findall(r"^#+ (.+)$", PAGE, re.M)}
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        if link.startswith("#"):
            assert link[1:] in headings, link
        else:
            assert (Path(__file__).parents[2] / "docs" / link).exists(), link
