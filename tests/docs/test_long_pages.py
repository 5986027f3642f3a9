"""What is on the pages of results, rivals, CIFAR-10, privacy, the engine and reliability runs as it stands there, on
small data and for one round: in full it trains for hours.
"""

from __future__ import annotations

import itertools
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command import fedpu
from fedpu.config import Config
from fedpu.data import load
from fedpu.privacy import secagg

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ONE_ROUND = ["--set=aggregation.rounds=1", "--set=engine.workers=1", "--set=evaluation.every=1"]
SMALL = ["--set=data.name=few.npz", "--set=model.name=mlp", *ONE_ROUND]
FEW = 600


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [block for found, block in BLOCK.findall(text) if found == kind]


def commands(page: str) -> Iterator[list[str]]:
    """Yield the commands of a page in words; shell variables have the values that they are given on it."""
    given: dict[str, str] = {}
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.match(r"""([A-Z]+)=(["'])(.*)\2$""", line):
                given[found[1]] = found[3]
                continue
            for name, value in given.items():
                line = line.replace(f'"${name}"', shlex.quote(value))
                line = re.sub(rf"\${name}\b", lambda _, value=value: value, line)
            if words := shlex.split(line, comments=True):
                yield words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a few images, and what the pages find in the repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDPU_DATA", str(tmp_path))
    digits = load("digits")
    np.savez(
        tmp_path / "few.npz",
        x=digits.inputs[:FEW].numpy().squeeze(1),
        y=digits.labels[:FEW].numpy(),
        x_test=digits.test_inputs[:50].numpy().squeeze(1),
        y_test=digits.test_labels[:50].numpy(),
    )
    (tmp_path / "results").mkdir()
    (tmp_path / "results/rivals.toml").write_bytes((ROOT / "results/rivals.toml").read_bytes())
    return tmp_path


def presets(page: str) -> dict[str, list[str]]:
    """Return one command for each method of each of the paper's tables; the rows differ by numbers alone."""
    found: dict[str, list[str]] = {}
    for words in commands(page):
        if words[:3] == ["fedpu", "run", "--preset"]:
            found.setdefault(re.sub(r"-row\d+", "", words[3]), words[1:])
    return found


PRESETS = presets("results.md") | presets("cifar.md")


@pytest.mark.parametrize("words", PRESETS.values(), ids=PRESETS)
def test_a_run_of_the_tables_trains(words: list[str], folder: Path) -> None:
    preset = Config.load(preset=words[2])
    fewer = ["--set=data.pooled=[50,50]", "--set=partition.clients=6", "--set=labelling.per_class=2"]
    fewer = [] if preset.data.pooled is None else fewer
    fedpu(*words, *SMALL, *fewer, "--quiet", "--out=run", cwd=folder)
    made = tomllib.loads((folder / "run/config.toml").read_text())
    assert made["aggregation"]["rounds"] == 1
    assert (folder / "run/result.json").exists()


def test_the_tables_pages_have_no_other_commands() -> None:
    others = {" ".join(words[:3]) for page in ("results.md", "cifar.md") for words in commands(page)}
    others -= {"fedpu run --preset"}
    # They are run in tests/applications/reproduction, in tests/results and in tests/data/test_fetch.py.
    assert others == {"fedpu reproduce --scale", "python results/fill_tables.py", "fedpu data fetch"}


def test_the_page_on_rivals_can_be_followed(folder: Path) -> None:
    for number, text in enumerate(blocks("rivals.md", "toml")):
        name = re.match(r"# (\S+\.toml)\n", text)
        path = folder / (name[1] if name else f"{number}.toml")
        path.write_text(text)
        fedpu("show", path.name, "--set=data.name=few.npz", *_few_clients(text), cwd=folder)
    done = list(commands("rivals.md"))
    assert len(done) >= 5
    for words in done:
        assert words[0] == "fedpu"
        fedpu(*words[1:], *SMALL, *_few_clients((folder / words[2]).read_text() + str(words)), "--quiet", cwd=folder)
    for data, partition in itertools.product(("mnist", "fashion"), ("iid", "rotated")):
        assert (folder / "results" / f"rivals-{data}-{partition}" / "comparison.json").exists()


def _few_clients(text: str) -> list[str]:
    """Return what makes 100 clients six, for whom these images are enough."""
    few = ["--set=labelling.per_class=2", "--set=labelling.overlap=true", "--set=partition.clients=6"]
    return [*few, "--set=partition.per_class=2"] if "rotated" in text else few


def test_the_engines_page_measures_a_network_of_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my_nets.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n    def __init__(self, inputs, classes):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(inputs[0] * inputs[1] * inputs[2], classes))\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    ours, script = commands("engine.md")
    few = [{"5,1000": "5", "cifar10": "3x8x8"}.get(word, word) for word in ours[1:]]
    told = fedpu(*few, "--examples=20", "--repeats=1", "--no-plain", "--set=engine.workers=1", cwd=folder).stdout
    assert "fedpu" in told
    assert script[:2] == ["python", "benchmarks/compare.py"]
    monkeypatch.setattr(sys, "argv", script[1:])
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    # What it starts are other simulators in environments of their own: here it only reads its command line.
    understood = runpy.run_path(str(ROOT / script[1]))
    options = understood["arguments"]()
    assert set(options.peers) <= set(understood["ALL_PEERS"])
    assert set(options.scenario) <= set(understood["SCENARIOS"])


def test_the_page_on_reliability_starts_a_soak(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, script = commands("reliability.md")
    rules = (ROOT / "Makefile").read_text()
    assert make == ["make", "soak", "SECONDS=3600"]
    assert "python benchmarks/soak --seconds $(SECONDS)" in rules
    assert script[:2] == ["python", "benchmarks/soak"]
    monkeypatch.setattr(sys, "argv", [*script[1:], "--seconds=0", f"--out={folder / 'soak'}"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script[1]), run_name="__main__")
    assert not ended.value.code
    assert list((folder / "soak").iterdir())


def test_the_secure_sum_of_the_page_on_privacy_is_the_plain_one() -> None:
    """The page has the server's lines, then the client's: what a client answers is made by the client's lines."""
    (code,) = blocks("privacy.md", "python")
    of_server, of_client = (part.splitlines() for part in code.split("\n\n"))
    *steps, store, load_again = of_client
    assert [line.partition("(")[0].rpartition(".")[2] for line in steps] == ["join", "share", "mask", "open"]
    rng = np.random.default_rng(0)
    weights, values = [3, 1, 7], rng.uniform(-1, 1, (3, 20))
    rules = secagg.Rules(3, 20, range=1.0, max_weight=10)
    own: list[dict[str, Any]] = [
        {"SecureClient": secagg.SecureClient, "id": id, "weight": weights[id], "values": values[id]} for id in range(3)
    ]
    left = iter(zip(steps, ("rules", "neighbourhood", "inbox", "request"), strict=True))

    def answers_to(messages: dict[int, Any]) -> Iterator[tuple[int, Any]]:
        step, name = next(left)
        for id, message in messages.items():
            own[id][name] = message
            exec("\n".join([step, store, load_again]), own[id])
            yield id, own[id]["answer"]

    names: dict[str, Any] = {"SecureServer": secagg.SecureServer, "rules": rules, "clients": range(3)}
    exec("\n".join(of_server), names | {"answers_to": answers_to}, names)
    total = names["total"]
    assert total.weight == sum(weights)
    assert np.abs(total.mean - np.average(values, axis=0, weights=weights)).max() < rules.step
