"""The configuration: its contract of keys, its presets, and errors that say what to do."""

from __future__ import annotations

import tomllib
from typing import Literal

import pytest
from pydantic import Field

from fedpu.aggregation import AGGREGATIONS, FedAvg
from fedpu.cli import main
from fedpu.config import SECTIONS, Config, default_file
from fedpu.config.sections import Section
from fedpu.errors import ConfigError, FedpuWarning
from fedpu.method import Supervised
from fedpu.presets import preset_names
from fedpu.registry import Registry, Settings

CONTRACT = """
seed = 0
[data]
name = "mnist"
[partition]
kind = "iid"
clients = 10
classes_per_client = 5
[labelling]
positive = 1
overlap = false
fraction = 0.5
[model]
name = "paper-cnn"
[method]
name = "fedpu"
[aggregation]
name = "fedavg"
rounds = 200
local_epochs = 1
batch_size = 100
lr = 0.01
lr_decay = 0.995
momentum = 0.5
participation = 1.0
[engine]
name = "local"
"""


def test_the_contract_of_keys_is_the_default() -> None:
    assert Config.from_dict(tomllib.loads(CONTRACT)) == Config()


def test_the_default_file_is_complete_commented_and_loads_to_the_defaults() -> None:
    text = default_file()
    assert Config.from_dict(tomllib.loads(text)) == Config()
    for section in SECTIONS.values():
        for key, variant in section.fields():
            assert key in text
            assert key == section.key or variant.model_fields[key].description, f"{section.name}.{key} says nothing"


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_and_round_trips(name: str) -> None:
    config = Config.load(preset=name)
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config


@pytest.mark.parametrize("section", [s for s in SECTIONS.values() if s.key], ids=lambda s: s.name)
def test_every_variant_of_every_table_can_be_chosen_and_round_trips(section) -> None:  # type: ignore[no-untyped-def]
    for name in section.variants:
        config = Config().with_(f"{section.name}.{section.key}={name}")
        assert type(getattr(config, section.name)) is section.variants[name]
        assert Config.from_dict(tomllib.loads(config.to_toml())) == config


def test_keys_can_be_set_one_by_one(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "c.toml"
    file.write_text("seed = 3\n[aggregation]\nrounds = 5\n")
    config = Config.load(
        file, overrides=["labelling.positive=[2,2,1]", "method.name=supervised", "labelling.fraction=1/3"]
    )
    assert config.seed == 3
    assert config.aggregation.rounds == 5
    assert config.labelling.positive == [2, 2, 1]
    assert config.method.model_dump() == {"name": "supervised"}
    assert config.labelling.fraction == pytest.approx(1 / 3)
    assert Config.load(overrides=["labelling.positive=[[0, 1], [2]]"]).labelling.positive == [[0, 1], [2]]


WRONG = {
    "metod.name=fedpu": "no setting 'metod'. Did you mean 'method'",
    "method.nam=fedpu": r"no setting 'method\.nam'. Did you mean 'name'",
    "aggregation.learning_rate=1": r"no setting 'aggregation\.learning_rate'.*lr",
    "method.name=fedpuu": "'fedpuu' is not known. Did you mean 'fedpu'.*positive-only",
    "method.surrogate=logg": r"method\.surrogate = 'logg'.*Did you mean 'log'",
    "method.clamp=maxx": r"method\.clamp = 'maxx'.*'max'.*Did you mean 'max'",
    "partition.kind=dirichle": "Did you mean 'dirichlet'",
    "partition.clients=0": r"partition\.clients = 0 can't be used: it should be greater than or equal to 1",
    "partition.clients=ten": r"partition\.clients = 'ten'.*integer",
    "partition.alpha=-1": r"partition\.alpha = -1.*greater than 0",
    "aggregation.lr=nan": r"aggregation\.lr = nan.*finite",
    "aggregation.lr=0": r"aggregation\.lr = 0.*greater than 0",
    "aggregation.participation=1.5": r"aggregation\.participation = 1\.5.*less than or equal to 1",
    "labelling.fraction=2": r"labelling\.fraction = 2",
    "labelling.fraction=half": "fraction such as '1/3'",
    "labelling.positive=-1": r"labelling\.positive = -1",
    "labelling.positive=all": r"labelling\.positive = 'all'.*as-given",
    "aggregation.rounds=true": r"aggregation\.rounds = True",
    "aggregation.rounds='2'": r"aggregation\.rounds = '2'",
    "aggregation.lr=true": r"aggregation\.lr = True",
    "aggregation.lr=1e308": r"aggregation\.lr",
    "labelling.overlap='yes'": r"labelling\.overlap = 'yes'",
    "labelling.positive=100000000000000000000000": r"labelling\.positive",
    "aggregation.batch_size=100000000000000000000": r"aggregation\.batch_size",
    "engine.device=meta": r"engine\.device = 'meta'",
    "seed=-1": "seed = -1 can't be used",
    "seed=x": "seed = 'x' can't be used",
    "data=mnist": r"\[data\] must be a table",
    "engine.device=gpu9": r"engine\.device = 'gpu9'",
    "nonsense": "write table.key=value",
    "seed.x=1": "no setting 'seed'|seed",
}


@pytest.mark.parametrize(("override", "message"), WRONG.items(), ids=WRONG)
def test_a_wrong_key_or_value_is_named_with_its_remedy(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Config.load(overrides=[override])
    assert "\n" not in str(caught.value)


def test_numbers_may_begin_with_a_point() -> None:
    config = Config().with_("aggregation.lr=.05", "augmentation.noise=.2", "data.name=.5/x.csv")
    assert (config.aggregation.lr, config.augmentation.noise, config.data.name) == (0.05, 0.2, ".5/x.csv")
    assert Config().with_("method.name=aligned", "method.temperatures=[.5, 1]").method.model_dump()["temperatures"] == (
        0.5,
        1.0,
    )


def test_files_that_can_not_be_read_are_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match="no configuration file"):
        Config.load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="use --preset quickstart"):
        Config.load("quickstart")
    with pytest.raises(ConfigError, match="is a folder"):
        Config.load(tmp_path)
    (tmp_path / "bad.toml").write_text("seed = = 1")
    with pytest.raises(ConfigError, match="not a valid TOML file"):
        Config.load(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="Did you mean 'quickstart'"):
        Config.load(preset="quikstart")
    with pytest.raises(ConfigError, match="not both"):
        Config.load("a.toml", preset="quickstart")


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().seed = 1  # type: ignore[misc]


def test_a_key_of_another_variant_plays_no_part_and_a_warning_says_so() -> None:
    told = (
        r"aggregation\.stragglers = 0\.5 plays no part with aggregation\.name = 'fedavg': it is a setting of fedprox\. "
        "Remove it, or choose fedprox"
    )
    with pytest.warns(FedpuWarning, match=told):
        config = Config.load(overrides=["aggregation.stragglers=0.5"])
    assert config == Config()
    with pytest.warns(FedpuWarning, match=r"'supervised': it is a setting of fedpu and conventional-pu"):
        Config.from_dict({"method": {"name": "supervised", "clamp": "max"}})
    assert Config.from_dict({"method": {"name": "supervised", "clamp": "reverse"}}).method == Supervised()
    with pytest.raises(ConfigError, match=r"method\.clamp = 'maxx'.*Did you mean 'max'"):
        Config.from_dict({"method": {"name": "supervised", "clamp": "maxx"}})


def test_an_override_that_chooses_another_variant_drops_what_was_the_former_ones() -> None:
    prox = Config.load(overrides=["aggregation.name=fedprox", "aggregation.stragglers=0.5", "aggregation.rounds=7"])
    assert prox.with_("aggregation.name=fedavg").aggregation == FedAvg(rounds=7)
    cell = "table11-row2-fedpu"
    assert Config.load(preset=cell, overrides=["aggregation.name=fedavg"]).aggregation.participation == 0.1
    with pytest.warns(FedpuWarning, match=r"aggregation\.mu = 0\.5 plays no part"):
        Config.load(preset=cell, overrides=["aggregation.mu=0.5", "aggregation.name=fedavg"])
    with pytest.warns(FedpuWarning, match=r"aggregation\.mu = 0\.5 plays no part"):
        prox.with_("aggregation.name=fedavg", "aggregation.mu=0.5")


class _One(Settings):
    name: Literal["one"] = "one"
    size: int = 1


class _Other(Settings):
    name: Literal["other"] = "other"
    size: str = Field("wide", description="how large")
    only: float = 0.5


def test_variants_may_have_keys_of_one_name_and_different_types() -> None:
    table = Section("shape", Registry("shape", {"one": _One, "other": _Other}), "name")
    assert table.parse({"name": "other", "size": "tall"}) == _Other(size="tall")
    assert table.parse({"size": 3, "only": 0.5}) == _One(size=3)
    with pytest.raises(ConfigError, match=r"shape\.size = 'tall'.*integer"):
        table.parse({"name": "one", "size": "tall"})
    with pytest.raises(ConfigError, match=r"shape\.size = 3.*string.*how large"):
        table.parse({"name": "other", "size": 3})
    before = {"name": "other", "size": "wide", "only": 2.0}
    assert table.without_leftovers(before, before | {"name": "one"}, (), None) == {"name": "one"}
    assert table.without_leftovers(before, before | {"name": "one", "only": 3}, ("only",), None)["only"] == 3


def test_the_command_line_prints_a_warning_once_as_a_sentence(monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    overrides = ["--set=aggregation.mu=0.5", "--set=data.name=digits", "--json"]
    monkeypatch.setattr("sys.argv", ["fedpu", "show", *overrides])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if "plays no part" in line] == told[:1]
    assert told[0].startswith("warning: aggregation.mu = 0.5 plays no part")


def test_every_table_with_a_choice_says_that_it_can_be_the_users_own() -> None:
    text = " ".join(default_file().replace("#", "").split())
    for section in SECTIONS.values():
        if section.key:
            start = text.index(f"[{section.name}]")
            assert "or your own as module:Class" in text[start : start + 250], section.name


def test_a_key_with_several_defaults_follows_the_chosen_variant() -> None:
    step = Config().with_("aggregation.name=scaffold")
    assert step.with_("aggregation.name=fedadam").aggregation == AGGREGATIONS["fedadam"]()
    assert step.with_("aggregation.server_lr=0.5", "aggregation.name=fedadam").aggregation.server_lr == 0.5
    changed = Config().with_("aggregation.name=scaffold", "aggregation.server_lr=0.5")
    assert changed.with_("aggregation.name=fedadam").aggregation.server_lr == 0.5
    assert "# server_lr =" in default_file()
    assert "default: 1.0 with scaffold" in default_file()
