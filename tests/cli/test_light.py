"""What the command says at once is true, and needs no PyTorch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import typer

import fedpu
from fedpu.cli import known
from fedpu.cli.app import app
from fedpu.config import Config
from fedpu.data import SOURCES, data_directory
from fedpu.valid_json import json_text

HEAVY = ("torch", "numpy", "pydantic", "matplotlib", "sklearn", "scipy", "flwr")
LIGHT = ("--help", "--version", "config", "config --presets", "data list", "run --help", "deploy init --help")


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_configuration_and_data_sets_come_without_heavy_imports() -> None:
    code = f"""
import contextlib, io, sys
from fedpu.cli import main
for line in {LIGHT!r}:
    sys.argv = ["fedpu", *line.split()]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main()
    assert len(out.getvalue()) > 5, line
    found = [name for name in {HEAVY!r} if name in sys.modules]
    assert not found, (line, found)
"""
    python(code)


def test_what_is_said_at_once_is_up_to_date() -> None:
    for name, text in known.made_anew().items():
        assert known._read(name) == text, "run 'python -m fedpu.cli.known', and commit what it writes"


def test_data_sets_are_found_where_training_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in known.data_sets():
        source, folder = SOURCES[one.name], tmp_path / one.name
        folder.mkdir()
        for number, name in enumerate(one.files):
            assert one.missing(tmp_path) == list(source.missing(tmp_path))
            (folder / (f"{name}.gz" if number % 2 else name)).touch()
        assert one.missing(tmp_path) == list(source.missing(tmp_path)) == []
    monkeypatch.chdir(tmp_path)
    for setting in ("", "~/somewhere", str(tmp_path)):
        monkeypatch.setenv("FEDPU_DATA", setting)
        assert known.data_directory(None) == data_directory()
        assert known.data_directory(Path("~/other")) == data_directory("~/other")
    (tmp_path / "data").mkdir()
    monkeypatch.delenv("FEDPU_DATA")
    assert known.data_directory(None) == data_directory() == Path("data")


def test_what_installed_packages_add_is_in_the_default_configuration(tmp_path: Path) -> None:
    info = tmp_path / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fedpu.methods]\nnobody-elses = my_package:Mine\n")
    code = "from fedpu.cli.known import default_configuration; print(default_configuration())"
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert "nobody-elses" in python(code, PYTHONPATH=path)
    assert "nobody-elses" not in known.default_configuration()


def test_every_preset_is_listed_and_can_be_loaded() -> None:
    listed = [preset["name"] for preset in known.preset_listing()]
    assert {"quickstart", "table1-row4-fedpu", "table1-row4-fedpu-quick"} <= set(listed)
    assert len(listed) == len(set(listed))
    assert Config.load(preset=listed[-1])
    assert all(preset["what"] for preset in known.preset_listing())


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", fedpu.__version__)
    assert version("fedpu")
    done = subprocess.run([sys.executable, "-m", "fedpu", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"fedpu {fedpu.__version__}\n"


def test_every_public_name_can_be_imported_and_no_other() -> None:
    for name in fedpu.__all__:
        assert getattr(fedpu, name) is not None
    assert fedpu.theory.__name__ == "fedpu.theory"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fedpu.nonsense  # noqa: B018


def commands(group: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    own = getattr(group, "commands", None)
    if own is None:
        return [path]
    return [found for name, command in own.items() for found in commands(command, (*path, name))]


ALL = commands(typer.main.get_command(app))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_is_plain_and_every_command_with_output_can_print_json(path: tuple[str, ...]) -> None:
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]
    text = command.get_help(typer.Context(command))
    assert "\\" not in text
    endless = {("deploy", "serve"), ("deploy", "node")}
    assert ("--json" in text) == (path not in endless)


def test_json_has_no_number_that_is_none() -> None:
    given = {"a": [1.0, float("nan")], "b": ({"c": float("inf")}, 2), "d": None, "e": True}
    assert json.loads(json_text(given)) == {
        "a": [1.0, None],
        "b": [{"c": None}, 2],
        "d": None,
        "e": True,
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fedpu run --preset quick", "quickstart"),
        ("fedpu run --set aggregation.ro", "aggregation.rounds="),
        ("fedpu rep", "report"),
    ],
)
def test_the_shell_completes_commands_presets_and_settings(words: str, expected: str) -> None:
    environment = {
        **os.environ,
        "_FEDPU_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    code = "import sys; sys.argv = ['fedpu']; from fedpu.cli.app import app; app(prog_name='fedpu')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert expected in done.stdout.split(), done


def test_the_default_configuration_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(known.default_configuration())
    assert Config.load(tmp_path / "my.toml") == Config()
    assert tomllib.loads(known.default_configuration())["seed"] == 0
