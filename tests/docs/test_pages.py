"""Every command of the README and the documentation is understood by the command line, and every block is code.

Those of the first pages that a newcomer reads are run, on smaller data.
"""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
import typer

import fedpu
from fedpu.applications.comparison import split_methods, variant
from fedpu.augmentation import Augmentation
from fedpu.cli import known, main
from fedpu.cli.app import app
from fedpu.config import Config
from fedpu.config.sections import SECTIONS
from patients import write_patients

ROOT = Path(__file__).parents[2]
PAGES = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(page, kind, text) for page, content in PAGES.items() for kind, text in BLOCK.findall(content)]
OTHERS = {"pip", "make", "python", "cd", "export", "mkdocs"}
WHOLE: click.Command = typer.main.get_command(app)
SMALL = ["--set=data.name=digits", "--set=model.name=mlp", "--set=aggregation.rounds=1", "--set=engine.workers=1"]


def commands(text: str) -> list[list[str]]:
    """Return the commands of a block, in words; lines that end in a backslash are joined."""
    lines = text.replace("\\\n", " ").splitlines()
    found = [words for line in lines if (words := shlex.split(line, comments=True))]
    return [words for words in found if "=" not in words[0] and not any("$" in word for word in words)]


COMMANDS = [(page, words) for page, kind, text in BLOCKS if kind == "sh" for words in commands(text)]
OURS = {" ".join(words): words[1:] for _, words in COMMANDS if words[0] == "fedpu" and ">" not in words}


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    for page, content in PAGES.items():
        assert not re.search(r"^    (fedpu|pip|python|make) ", BLOCK.sub("", content), re.MULTILINE), page
    assert {kind for _, kind, _ in BLOCKS} <= {"sh", "python", "toml", "json", "csv", "mermaid", ""}
    assert {words[0] for _, words in COMMANDS} - {"fedpu"} <= OTHERS
    assert len(OURS) > 40


def parsed(arguments: list[str]) -> click.Context:
    """Return the context of a command; click refuses what it does not know."""
    command, rest = WHOLE, list(arguments)
    while isinstance(command, click.Group):
        name, command, rest = command.resolve_command(click.Context(command), rest)  # type: ignore[assignment]
        assert command is not None, name
    return command.make_context("fedpu", rest)


@pytest.mark.parametrize("arguments", OURS.values(), ids=OURS)
def test_every_command_is_understood_with_its_settings(arguments: list[str]) -> None:
    given = parsed(arguments).params
    own = any(":" in change.partition("=")[2] for change in given.get("overrides") or ())
    if (given.get("preset") is None and given.get("config") is not None) or own:
        return  # a file or a class that another page or its reader makes
    config = Config.load(preset=given.get("preset"), overrides=given.get("overrides") or ())
    for method in split_methods(given["methods"]) if "methods" in given else ():
        variant(config, method)


def test_python_and_toml_blocks_are_python_and_toml() -> None:
    for page, kind, text in BLOCKS:
        if kind == "python":
            compile(text, page, "exec")
        if kind == "toml" and "--8<--" not in text:
            tomllib.loads(text)


def test_the_code_of_the_first_pages_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_patients(tmp_path)
    names = {
        "fedpu": fedpu,
        "model": torch.nn.Linear(4, 10),
        "inputs": torch.zeros(6, 4),
        "labels": torch.tensor([3, 3, -1, -1, -1, -1]),
    }
    for page, kind, text in BLOCKS:
        if kind == "python" and page in ("README.md", "docs/tour.md"):
            small = re.sub(r'"aggregation\.rounds=\d+"', '"aggregation.rounds=1", "engine.workers=1"', text)
            exec(compile(small, page, "exec"), dict(names))


FOLLOWED = (
    "docs/tour.md",
    "docs/report.md",
    "docs/choosing.md",
    "docs/pictures.md",
    "docs/privacy.md",
    "docs/priors.md",
)
FOLLOWED += ("docs/risk.md", "docs/robustness.md", "docs/theory.md", "README.md")
"""pages whose commands are run, one page after another, in one folder; docs/extending.md, validation.md, your-data.md,
models.md and deploy.md have tests of their own, and test_long_pages.py is about those that train for hours
"""
ELSEWHERE = {"reproduce": "tests/applications/reproduction", "deploy": "tests/deploy"}
"""commands that take minutes even on small data, and what runs them"""


def smaller(words: list[str]) -> list[str]:
    """Return a command on small data, with one round."""
    if words[1] not in ("run", "compare", "tune", "show", "priors"):
        return words
    own = any(word.startswith("--data") for word in words)
    small = [word for word in SMALL if not own or ("data.name" not in word and "model.name" not in word)]
    small += [] if words[1] in ("show", "priors") else ["--quiet"]
    if words[1] == "tune":
        return [*words, *small, "--seeds=1", "--trials=1"]
    return [*words, *small]


def test_the_commands_of_the_pages_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPU_DATA", str(tmp_path))
    write_patients(tmp_path)
    (tmp_path / "my.toml").write_text(known.default_configuration())  # fedpu config > my.toml
    run = set[str]()
    for page in FOLLOWED:
        for words in (words for where, words in COMMANDS if where == page and words[0] == "fedpu"):
            if ">" in words or words[1] in ELSEWHERE or " ".join(words) in run:
                continue
            run.add(" ".join(words))
            monkeypatch.setattr(sys, "argv", smaller(words))
            with pytest.raises(SystemExit) as ended:
                main()
            assert not ended.value.code, words
    assert (tmp_path / "runs/both.html").exists()
    assert (tmp_path / "runs/tour/report.html").exists()
    assert (tmp_path / "runs/page.html").exists()
    assert (tmp_path / "runs/mine/report.html").exists()
    assert len(run) > 15


def test_the_code_of_other_pages_runs() -> None:
    code = {page: text for page, kind, text in BLOCKS if kind == "python"}
    rng = np.random.default_rng(0)
    classes = {name: rng.normal(place, 1, (200, 2)) for name, place in (("labelled_threes", 0), ("labelled_eights", 4))}
    unlabelled = np.concatenate([rng.normal(place, 1, (200, 2)) for place in (0, 4, 8)])
    names: dict[str, Any] = {**classes, "unlabelled": unlabelled}
    exec(compile(code["docs/priors.md"], "priors.md", "exec"), names)
    assert abs(names["found"].priors[3] - 1 / 3) < 0.15
    own: dict[str, Any] = {}
    exec(compile(code["docs/augmentation.md"], "augmentation.md", "exec"), own)
    transform, inputs = own["Negative"](Augmentation()), torch.ones(8, 1, 3, 3)
    drawn = transform.draw(8, (1, 3, 3), torch.Generator().manual_seed(0))
    assert set(transform.apply(inputs, drawn).unique().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", BLOCK.sub("", PAGES[page])):
        if not link.startswith(("http://", "https://")):
            assert ((ROOT / page).parent / link).exists(), link


def test_the_reference_has_every_public_name() -> None:
    listed = re.findall(r"^::: (\S+)$", PAGES["docs/api.md"], re.MULTILINE)
    assert set(fedpu.__all__) - {"__version__"} <= {name.rpartition(".")[2] for name in listed}
    for name in listed:
        module, _, own = name.rpartition(".")
        assert getattr(importlib.import_module(module), own) is not None


@pytest.mark.parametrize("page", ["docs/glossary.md", "docs/faq.md", "docs/choosing.md", "docs/your-data.md"])
def test_settings_that_a_page_speaks_of_exist(page: str) -> None:
    tables = {
        name: {key for _, kind in section.variants.items() for key in kind.model_fields} | {"name", "kind"}
        for name, section in SECTIONS.items()
    }
    named = re.findall(r"`([a-z]+)\.([a-z_]+)(?: = [^`]*)?`", PAGES[page])
    told = [(table, key) for table, key in named if table in tables]
    assert told
    for table, key in told:
        assert key in tables[table], f"{table}.{key}"


def test_the_readme_is_short_and_begins_with_how_to_install() -> None:
    lines = PAGES["README.md"].splitlines()
    assert len(lines) < 100
    assert "make run" in "\n".join(lines[:8])


def test_the_site_is_built_without_a_warning_and_has_every_page(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("nav:")[2]
    for page in (ROOT / "docs").glob("*.md"):
        assert re.search(rf": {page.name}$", navigation, re.MULTILINE), page.name
        assert (tmp_path / f"site/{page.stem}.html").exists()
    text = (tmp_path / "site/results.html").read_text("utf-8")
    assert (tmp_path / "site/beside/results/tables/table1.svg").exists()
    assert 'src="beside/results/tables/table1.svg"' in text
    assert "fonts.googleapis" not in text
    reference = (tmp_path / "site/api.html").read_text("utf-8")
    assert 'id="fedpu.applications.experiment.run"' in reference
    assert "[aggregation]" in (tmp_path / "site/configuration.html").read_text("utf-8")
