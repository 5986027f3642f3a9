"""A user's own classes and functions, in a folder outside the package: run, recorded, read back, and refused."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedpu
from fedpu.cli import main
from fedpu.config import Config
from fedpu.data import DataSettings
from fedpu.errors import ConfigError, DataError, FedpuError, FedpuWarning
from fedpu.method import METHODS, FedPU
from fedpu.models import OwnModel
from fedpu.partition import Iid
from fedpu.registry import is_reference

MODULE = """
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from torch import nn

import fedpu
from fedpu.aggregation import FedAvg
from fedpu.data import DataSettings
from fedpu.engine import ReferenceEngine
from fedpu.method import FedPU, Method
from fedpu.models import Model
from fedpu.partition import Partition, Partitioner
from fedpu.priors.estimators import Count
from fedpu.risk import Surrogate

number = 3


class Anchored(FedPU):
    cross_entropy: float = 0.5
    strength: float = Field(1.0, gt=0, description="how strong it is")


class Blocks(Partitioner):
    clients: int = Field(5, ge=1)

    def split(self, data, seed):
        return Partition.of(np.array_split(np.arange(len(data.labels)), self.clients))


class Slow(FedAvg):
    factor: float = 0.5

    def lr_at(self, round_):
        return self.factor * super().lr_at(round_)


class Small(Model):
    width: int = 8

    def build(self, shape, classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, self.width), nn.ReLU(), nn.Linear(self.width, classes))


class Plain(ReferenceEngine):
    pass


class Counted(Count):
    power: float = 1.0


class Titled(FedPU):
    name: Literal["titled"] = "titled"


class Pair(FedPU):
    low: float
    high: float = 1.0

    @model_validator(mode="after")
    def _in_order(self):
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self


class Unfinished(Method):
    pass


class Stranger:
    pass


def network(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))


def linear(logits):
    p = logits.softmax(dim=1)
    return Surrogate(wrong=1 - p, right=p)


def read():
    return fedpu.load("digits")


def arrays():
    data = read()
    return data.inputs, data.labels


def owned(settings):
    data = read()
    return data.inputs, data.labels, np.arange(len(data.labels)) % 5


def too_much(one, two):
    return None


def nothing():
    return None


def failing():
    raise OSError("the disk is gone")
"""
TINY = [
    "data.name=users_own:read",
    "labelling.positive=2",
    "model.name=mlp",
    "model.hidden=[8]",
    "partition.clients=5",
    "aggregation.rounds=2",
    "engine.workers=1",
]
EVERYTHING = [
    "data.name=users_own:read",
    "labelling.positive=2",
    "partition.kind=users_own:Blocks",
    "partition.clients=5",
    "model.name=users_own:Small",
    "model.width=9",
    "method.name=users_own:Anchored",
    "method.strength=2",
    "method.surrogate=users_own:linear",
    "aggregation.name=users_own:Slow",
    "aggregation.factor=0.25",
    "aggregation.rounds=2",
    "priors.source=estimated",
    "priors.estimator=users_own:Counted",
    "priors.options.power=2",
    "engine.name=users_own:Plain",
    "engine.workers=1",
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the user's module, in which the user stands."""
    (tmp_path / "users_own.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "users_own", raising=False)
    importlib.invalidate_caches()
    return tmp_path


@pytest.fixture
def users_own(folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    return importlib.import_module("users_own")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run the command in this process; return what it printed, and the errors."""

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["fedpu", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert (ended.value.code or 0) == code, captured.err
        return captured.out, captured.err

    return run


def settings(overrides: list[str]) -> list[str]:
    return [f"--set={override}" for override in overrides]


def test_everything_of_the_users_own_is_run_and_recorded(folder: Path, command: Callable[..., tuple[str, str]]) -> None:
    out, _ = command("run", *settings(EVERYTHING), "--out", "r", "--json")
    assert json.loads(out)["method"] == "users_own:Anchored"
    lines = [json.loads(line) for line in (folder / "r/rounds.jsonl").read_text().splitlines()]
    assert [line["lr"] for line in lines] == pytest.approx([0.0025, 0.0025 * 0.995])
    assert "cross-entropy" in lines[0]["risk"]

    recorded = tomllib.loads((folder / "r/config.toml").read_text())
    assert recorded["method"]["name"] == "users_own:Anchored"
    assert recorded["method"]["strength"] == 2
    assert recorded["partition"] == {"kind": "users_own:Blocks", "clients": 5}
    assert recorded["model"] == {"name": "users_own:Small", "precision": "float32", "width": 9}
    config = Config.load(folder / "r/config.toml")
    assert config == Config.load(overrides=EVERYTHING)
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert "accuracy" in command("evaluate", "r")[0]


def test_a_run_of_theirs_is_resumed_to_the_same_model(folder: Path, command: Callable[..., tuple[str, str]]) -> None:
    command("run", *settings(EVERYTHING), "--out", "whole", "--quiet")

    def stop(line: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedpu.run(Config.load(overrides=EVERYTHING), out=folder / "stopped", on_round=stop)
    command("run", "--resume", "stopped", "--quiet")
    whole, stopped = ((folder / name / "model.safetensors").read_bytes() for name in ("whole", "stopped"))
    assert whole == stopped


def test_theirs_are_compared_beside_the_built_in_ones(folder: Path, command: Callable[..., tuple[str, str]]) -> None:
    methods = "positive-only,users_own:Anchored+strength=2"
    out, _ = command("compare", *settings(TINY), "--methods", methods, "--out", "c", "--json", "--quiet")
    assert [row["method"] for row in json.loads(out)["rows"]] == methods.split(",")
    assert (folder / "c/users_own.Anchored+strength=2-seed0/result.json").exists()


def test_an_object_made_in_python_is_read_back_equal(users_own: Any) -> None:
    config = Config(
        method=users_own.Anchored(strength=3),
        partition=users_own.Blocks(clients=2),
        model=users_own.Small(),
        aggregation=users_own.Slow(rounds=7),
        engine=users_own.Plain(),
    )
    assert config.method.name == "users_own:Anchored"
    assert config.partition.kind == "users_own:Blocks"
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config
    assert config.with_("method.strength=4").method == users_own.Anchored(strength=4)
    assert config.with_("seed=1").method is config.method


def test_a_name_of_its_own_does_not_keep_a_class_from_being_found_again() -> None:
    config = Config.load(overrides=["method.name=users_own:Titled"])
    assert config.method.name == "titled"
    assert config.to_dict()["method"]["name"] == "users_own:Titled"
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


def test_a_class_that_inherits_from_a_built_in_one_is_not_recorded_as_that(users_own: Any) -> None:
    assert FedPU().name == "fedpu"
    assert users_own.Anchored().name == "users_own:Anchored"


def test_a_class_that_can_not_be_imported_again_is_recorded_with_a_warning(tiny_config: Config) -> None:
    class Inside(FedPU):
        strength: float = 1.0

    config = tiny_config.model_copy(update={"method": Inside(strength=2)})
    with pytest.warns(FedpuWarning, match=r"Inside' is recorded, but .* defined inside a function"):
        config.to_toml()
    assert config.with_("seed=3", "method.strength=3").method == Inside(strength=3)
    Inside.__module__, Inside.__qualname__ = "__main__", "Inside"
    with pytest.warns(FedpuWarning, match="defined in the program that was started"):
        config.to_toml()


@pytest.mark.parametrize("name", ["read", "arrays", "owned"])
def test_data_come_from_a_function_of_theirs(name: str) -> None:
    data = fedpu.load(DataSettings(name=f"users_own:{name}", test_fraction=0.5))
    assert data.shape == (1, 8, 8)
    assert (len(data.test_labels) > 600) == (name != "read")
    assert (data.client is not None) == (name == "owned")


def test_what_is_there_as_a_path_is_no_reference(folder: Path) -> None:
    (folder / "users_own:read").mkdir()
    with pytest.raises(FedpuError, match="image"):
        fedpu.load(DataSettings(name="users_own:read"))
    for text in (r"C:\data", "C:/data", "https://a.b/c", "127.0.0.1:8000", "cuda:1", "mine/a:read", "mine:", ":read"):
        assert not is_reference(text)
    assert is_reference("a.b_c:D")
    with pytest.raises(ConfigError, match=r"There is no data set called 'C:\\data'"):
        fedpu.load(DataSettings(name=r"C:\data"))


def test_a_model_is_a_class_or_a_function() -> None:
    config = Config.load(overrides=["model.name=users_own:network"])
    assert config.model == OwnModel(name="users_own:network")
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


WRONG = {
    "method.name=users_own:Stranger": r"can't be used as a method: it must be a class that inherits from "
    r"fedpu\.method\.Method; it is the class Stranger",
    "method.name=users_own:network": "it is a function",
    "method.name=users_own:number": "it is 3 of type int",
    "method.name=users_own:Unfinished": "does not define objective",
    "method.name=users_own:Ancored": "The module 'users_own' has no 'Ancored'. Did you mean 'Anchored'",
    "method.name=users_owm:Anchored": "No module named 'users_owm'.*PYTHONPATH",
    "method.name=users_own.py:Anchored": "can't be imported",
    "method.name=./users_own.py:Anchored": "is not known.*or your own as module:Class",
    "method.name=broken:Method": r"can't be imported \(SyntaxError",
    "partition.kind=users_own:Anchored": r"fedpu\.partition\.Partitioner",
    "model.name=users_own:Anchored": r"fedpu\.models\.Model, or a function; it is the class Anchored",
    "model.name=users_own:number": "or a function; it is 3",
    "aggregation.name=users_own:Small": r"as an aggregation.*fedpu\.aggregation\.Aggregation",
    "engine.name=users_own:Small": r"fedpu\.engine\.Engine",
    "priors.estimator=users_own:Small": r"fedpu\.priors\.estimators\.Estimator",
    "priors.estimator=nobody:Small": "No module named 'nobody'",
    "method.surrogate=users_own:number": "'users_own:number' must be a function; it is 3",
    "method.surrogate=users_own:lineal": "Did you mean 'linear'",
}


@pytest.mark.parametrize(("override", "message"), WRONG.items(), ids=WRONG)
def test_what_can_not_be_used_is_told_in_a_sentence(folder: Path, override: str, message: str) -> None:
    (folder / "broken.py").write_text("def (")
    with pytest.raises(ConfigError, match=message) as caught:
        Config.load(overrides=[override])
    assert "\n" not in str(caught.value)


KEYS = {
    "strenght=2": r"no setting 'method\.strenght'. Did you mean 'strength'\? \[method\] with name = "
    r"'users_own:Anchored' has: name, expectation, .*strength\.",
    "strength=0": r"method\.strength = 0 can't be used: it should be greater than 0\. method\.strength: how strong",
    "strength='2'": r"method\.strength = '2'.*number",
}


@pytest.mark.parametrize(("key", "message"), KEYS.items(), ids=KEYS)
def test_keys_of_theirs_are_checked_like_built_in_ones(key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.load(overrides=["method.name=users_own:Anchored", f"method.{key}"])


def test_keys_without_default_and_checks_of_several_keys_are_told() -> None:
    with pytest.raises(ConfigError, match=r"method\.low must be given: it has no default"):
        Config.load(overrides=["method.name=users_own:Pair"])
    with pytest.raises(ConfigError, match=r"\[method\] can't be used as it is: low must not be above high"):
        Config.load(overrides=["method.name=users_own:Pair", "method.low=2"])
    with pytest.raises(ConfigError, match=r"'powr' of the estimator .* Did you mean 'power'"):
        Config.load(overrides=["priors.estimator=users_own:Counted", "priors.options.powr=1"]).priors.make_estimator()


WRONG = {
    "too_much": "must take no argument, or one",
    "nothing": r"returned NoneType; it must return a fedpu\.Dataset, \(x, y\)",
    "failing": "it raised OSError: the disk is gone",
    "number": "must be a function",
}


@pytest.mark.parametrize(("name", "message"), WRONG.items(), ids=WRONG)
def test_a_reader_that_can_not_be_used_is_told_in_a_sentence(name: str, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        fedpu.load(DataSettings(name=f"users_own:{name}"))
    with pytest.raises(ConfigError, match="image_size plays no part"):
        fedpu.load(DataSettings(name="users_own:read", image_size=(8, 8)))


def test_the_command_line_tells_a_mistake_in_one_line(command: Callable[..., tuple[str, str]]) -> None:
    _, told = command("run", "--set=method.name=users_own:Stranger", code=1)
    assert told.startswith("error: 'users_own:Stranger' can't be used as a method")
    assert len(told.splitlines()) == 1


@pytest.fixture
def package(folder: Path) -> Path:
    """A package that is installed in the folder, one of whose entry points leads nowhere."""
    info = folder / "fedpu_more-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fedpu-more\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fedpu.methods]\nanchored = users_own:Anchored\nbroken = no_such_module:Method\nfedpu = users_own:Titled\n"
        "stranger = users_own:Stranger\n"
        "[fedpu.partitions]\nblocks = users_own:Blocks\n[fedpu.models]\nsmall = users_own:Small\n"
        "[fedpu.aggregations]\nslow = users_own:Slow\n[fedpu.engines]\nplain = users_own:Plain\n"
        "[fedpu.estimators]\ncounted = users_own:Counted\n[fedpu.surrogates]\nlinear = users_own:linear\n"
        "[fedpu.data]\nsome-digits = users_own:read\n"
    )
    torn = folder / "torn-1.0.dist-info"
    torn.mkdir()
    (torn / "entry_points.txt").write_text("[fedpu.methods]\nthis is no entry point\n")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return folder


def test_an_installed_package_adds_names(package: Path, command: Callable[..., tuple[str, str]]) -> None:
    ours = [name for name, _ in METHODS.items()]
    assert list(METHODS) == [*ours, "anchored", "broken", "stranger"]
    assert METHODS["fedpu"] is FedPU, "a package can't take a built-in name"
    named = {"users_own:Anchored": "anchored", "users_own:Blocks": "blocks", "users_own:Small": "small"}
    named |= {"users_own:Slow": "slow", "users_own:Plain": "plain", "users_own:Counted": "counted"}
    named |= {"users_own:linear": "linear", "users_own:read": "some-digits"}
    overrides = []
    for override in EVERYTHING:
        key, _, value = override.partition("=")
        overrides.append(f"{key}={named.get(value, value)}")
    command("run", *settings(overrides), "--out", "r", "--quiet")
    config = Config.load(package / "r/config.toml")
    assert config == Config.load(overrides=overrides)
    assert config.to_dict()["method"]["name"] == config.method.name == "anchored"
    printed = " ".join(command("config")[0].replace("#", " ").split())
    assert f"{ours[-1]} | anchored | broken | stranger, or your own as module:Class" in printed


def test_a_broken_entry_point_is_told_of_only_when_it_is_asked_for(package: Path) -> None:
    Config.load(overrides=["method.name=positive-only"])
    with pytest.raises(ConfigError, match=r"method 'broken', which .* 'no_such_module:Method', can't be loaded"):
        Config.load(overrides=["method.name=broken"])
    with pytest.raises(ConfigError, match="it is the class Stranger"):
        Config.load(overrides=["method.name=stranger"])
    with pytest.raises(ConfigError, match="Did you mean 'anchored'"):
        Config.load(overrides=["method.name=ancored"])
    assert Config(partition=Iid()).partition.kind == "iid"
