"""A node sets its own privacy: it refuses what its file does not accept, and whatever departs from what was agreed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import ConfigRecord, RecordDict

from deploy.in_process import NAMES, Table, own_data_config
from fedpu.config import Config
from fedpu.data import Dataset
from fedpu.deploy import NodeSettings
from fedpu.deploy.accepts import Accepts, NotAccepted
from fedpu.deploy.folder import create, refuse_seeded_noise
from fedpu.deploy.invited import INVITATION
from fedpu.deploy.ledger import NEGATIVES, UPDATE, Ledger, Release
from fedpu.deploy.server import serve
from fedpu.errors import ConfigError, FedpuError, TrainingError
from fedpu.flower.wire import Request
from fedpu.privacy.accountant import gaussian_epsilon

SYSTEM = "privacy.noise_source=system"
LOCAL = ["privacy.differential=local", SYSTEM]
CENTRAL = ["privacy.differential=central", SYSTEM]
SECURE = ["privacy.secure_aggregation=true"]
UPDATES = ("train", "train.private", "train.secure")


@pytest.fixture
def table(digits: Dataset, tmp_path: Path) -> Table:
    return Table(tmp_path, digits)


REFUSED: dict[str, tuple[str, list[str], str]] = {
    "no differential privacy": ('differential = "local"', [], 'is "off", and the least is "local"'),
    "the server's noise": ('differential = "local"', CENTRAL, 'is "central", and the least is "local"'),
    "a larger clip": ("clip = 0.5", LOCAL, "privacy.clip is 1, and the largest is 0.5"),
    "less noise": ("noise_multiplier = 2.0", LOCAL, "noise_multiplier is 1, and the least is 2"),
    "no noise": (
        "noise_multiplier = 0.1",
        [*LOCAL, "privacy.noise_multiplier=0"],
        "noise_multiplier is 0, and the least is 0.1",
    ),
    "less noise on the sum": ("lent_noise_multiplier = 9.0", CENTRAL, "lent_noise_multiplier is 8, and the least is 9"),
    "noise of the seed": ("", ["privacy.differential=local"], 'is "seed", with which the server can take the noise'),
    "sums in the open": ("secure_aggregation = true", [], "only under secure aggregation"),
    "batches of one": ("", ["aggregation.batch_size=1"], "batch_size is 1, and the least is 8"),
    "a small group": ("group = 5", [*SECURE, "privacy.neighbours=2"], "hides it among 3 .*, and the least is 5"),
    "a budget without noise": ("epsilon = 3.0", [], "no ε can be held, and it accepts ε = 3"),
}


@pytest.mark.parametrize(("accepts", "settings", "told"), REFUSED.values(), ids=REFUSED)
def test_a_run_that_is_not_accepted_is_refused_at_joining(accepts: str, settings: list[str], told: str) -> None:
    values = NodeSettings.parse({"name": "n", "data": "d", "accepts": tomllib.loads(accepts)}).accepts
    assert values is not None
    with pytest.raises(NotAccepted, match=rf"'n' does not accept this run: .*{told}.* in \[accepts\]"):
        values.refuse(own_data_config(*settings), "n")


def test_what_is_accepted_is_answered_and_the_server_hears_why_not(table: Table) -> None:
    table.write_file("north", '[accepts]\ndifferential = "local"')
    with pytest.raises(TrainingError, match=r"'north' does not accept this run: privacy\.differential is \"off\""):
        table.train(own_data_config("engine.wait=0.2"))
    assert all(kind == "query.join" for _, kind, _ in table.sent), "nothing else has left anybody"
    assert not any(name == "north" for name, _, _ in table.sent)
    table.train(own_data_config(*LOCAL), "private")
    assert ("north", "train.private") in {(name, kind) for name, kind, _ in table.sent}


def test_the_first_run_is_the_floor_of_later_ones_unless_the_file_says_otherwise(table: Table) -> None:
    table.train(own_data_config(*LOCAL, "aggregation.rounds=1"))
    weaker = {
        "nothing": [],
        "no noise": [*LOCAL, "privacy.noise_multiplier=0"],
        "a clip of 9": [*LOCAL, "privacy.clip=9"],
        "the server's": CENTRAL,
    }
    for run, settings in enumerate(weaker.values(), 8):
        with pytest.raises(TrainingError, match="does not accept this run"):
            table.train(own_data_config(*settings, "engine.wait=0.2"), f"run-{run}", run=run)
    for name in NAMES:
        table.write_file(name, '[accepts]\ndifferential = "off"')
    table.train(own_data_config("aggregation.rounds=1"), "open", run=20)


def test_a_trial_on_the_servers_own_data_accepts_anything_unless_its_file_says_otherwise() -> None:
    assert NodeSettings(name="0", partition=0).accepted is None
    assert NodeSettings(name="0", partition=0, accepts=Accepts(rounds=1)).accepted == Accepts(rounds=1)
    assert NodeSettings(name="n", data="d").accepted == Accepts()


def test_the_old_place_of_a_setting_is_told(tmp_path: Path) -> None:
    (tmp_path / "n.toml").write_text('name = "n"\ndata = "d"\nsecure_aggregation = true\n')
    with pytest.raises(ConfigError, match=r"secure_aggregation belongs to the table \[accepts\]"):
        NodeSettings.load(tmp_path / "n.toml")


# An active server, which has the key of a run that the owner has signed.


def asks(kind: str | None = None, **work: Any) -> Callable[[Request], Request]:
    """Ask for another kind of answer to an update, or for other work."""

    def change(request: Request) -> Request:
        if request.kind not in UPDATES:
            return request
        content = RecordDict(dict(request.content))
        fields: Any = content["work"]
        content["work"] = ConfigRecord(dict(fields) | work)
        return replace(request, kind=kind or request.kind, content=content)

    return change


def says(**run: Any) -> Callable[[Request], Request]:
    """Say something else of the run in its second round."""

    def change(request: Request) -> Request:
        if request.kind not in UPDATES or request.group != "2":
            return request
        content = RecordDict(dict(request.content))
        fields: Any = content["run"]
        content["run"] = ConfigRecord(dict(fields) | run)
        return replace(request, content=content)

    return change


def renamed(request: Request) -> Request:
    """Call two classes by each other's names in the second round."""
    if request.kind not in UPDATES:
        return request
    run: Any = request.content["run"]
    return says(card=run["card"].replace('"0", "1"', '"1", "0"'))(request)


DEPARTURES: dict[str, tuple[list[str], Callable[[Request], Request], str]] = {
    "in the open": (LOCAL, asks("train"), "a plain update of a run in which .* is on"),
    "in the open, in a secure run": (SECURE, asks("train.private"), "in the open for what this run sums up securely"),
    "as a part without protection": ([], asks("train.private"), r"in which \[privacy\] is off"),
    "batches of one": (LOCAL, asks(batch_size=1), "batch_size = 1; the configuration says 50"),
    "a huge step": ([], asks(lr=1e9), "lr = 1000000000.0; the configuration says"),
    "more epochs": ([], asks(epochs=50), "epochs = 50; the configuration says 1"),
    "other momentum": ([], asks(momentum=0.99), "momentum = 0.99; the configuration says 0.5"),
    "a hundredth of the steps": ([], asks(share=0.01), "0.01 of the steps"),
    "a round that there is not": ([], asks(round=99), "round 99 of a run of 2"),
    "another client": (LOCAL, asks(client=3), "changed the number of this client|for two clients at once"),
    "work that is none": ([], asks(surprise=1), "work that the server asks for can't be read"),
    "another number of clients": ([], says(clients=2), "takes this node for client|changed the number of clients"),
    "another sum": ([], says(**{"co-negatives": [0.0] * 100}), "changed the sum over clients"),
    "other classes": ([], renamed, "changed the description of inputs and classes"),
    "classes that the method does not need": (
        ["method.lent=off"],
        asks("query.negatives"),
        "which classes are not labelled here, and the method does not use that",
    ),
}


@pytest.mark.parametrize(("settings", "change", "told"), DEPARTURES.values(), ids=DEPARTURES)
def test_a_message_that_departs_from_the_configuration_is_refused(
    table: Table, settings: list[str], change: Callable[[Request], Request], told: str
) -> None:
    with pytest.raises(FedpuError):
        table.train(own_data_config(*settings, "engine.deadline=1", "engine.min_clients=4"), change=change)
    honest = 4 if change.__qualname__.startswith(("says", "renamed")) else 0
    gives_out = (*UPDATES, "query.negatives") if "method.lent=off" in settings else UPDATES
    left = [name for name, kind, _ in table.sent if kind in gives_out and (kind, name) != ("train.private", "west")]
    assert len(left) <= honest, "no update has left"
    assert any(re.search(told, refusal) for refusal in table.refusals), table.refusals[:3]


def test_a_message_of_another_configuration_is_refused_even_if_the_owner_has_signed_it_too(table: Table) -> None:
    private, plain = own_data_config(*LOCAL, "engine.min_clients=4"), own_data_config()
    wire = table.signed(private, plain, change=says(config=plain.to_toml()))
    with pytest.raises(TrainingError, match=r"not the one with which this node has joined|does not accept this run"):
        serve(wire, private, table.folder / "run", resume=False)
    assert [kind for _, kind, _ in table.sent if kind in UPDATES] == ["train.private"] * 4, "of the first round"


def test_a_client_that_was_not_drawn_is_not_asked(table: Table) -> None:
    config = own_data_config(*LOCAL, "aggregation.participation=0.5", "aggregation.rounds=4")

    def everybody_always(request: Request) -> Request:
        if request.kind not in UPDATES:
            return request
        content = RecordDict(dict(request.content))
        fields: Any = content["work"]
        drawn = config.aggregation.select(config.seed, 0, 4)
        content["work"] = ConfigRecord(dict(fields) | {"round": 0} if fields["client"] not in drawn else dict(fields))
        return replace(request, content=content)

    with pytest.raises(TrainingError):
        table.train(config.with_("engine.min_clients=2"), change=everybody_always)
    assert any("for which it was not drawn" in refusal for refusal in table.refusals)


# Budgets, on the disk.


def test_rounds_are_counted_across_restarts_and_runs(table: Table) -> None:
    for name in NAMES:
        table.write_file(name, "[accepts]\nrounds = 3")
    table.train(own_data_config())
    table.restart("north")
    with pytest.raises(TrainingError, match=r"'north' has given out 3 updates, all that its owner accepts"):
        table.train(own_data_config("engine.min_clients=4"), "again", run=8)
    assert Ledger(table.state("north")).updates == 3


def test_epsilon_is_counted_as_the_accountant_counts_it_and_ends_what_a_node_gives_out(table: Table) -> None:
    delta = 1e-5
    three = gaussian_epsilon([(0.5, 3), (4.0, 1)], delta)
    for name in NAMES:
        table.write_file(name, f"[accepts]\nepsilon = {three + 0.1}")
    config = own_data_config(*LOCAL, "aggregation.rounds=5", "engine.min_clients=4")
    with pytest.raises(TrainingError, match=r"with this it would have spent ε = "):
        table.train(config)
    ledger = Ledger(table.state("north"))
    assert ledger.updates == 3
    assert ledger.releases == {Release(UPDATE, "local", 1.0): 3, Release(NEGATIVES, "local", 8.0): 1}
    assert ledger.epsilon(delta) == pytest.approx(three)


def test_under_central_noise_a_node_counts_more_than_the_record_which_knows_the_draw(table: Table) -> None:
    result = table.train(own_data_config(*CENTRAL, "aggregation.participation=0.5", "method.lent=off"))
    for name in NAMES:
        ledger = Ledger(table.state(name))
        if ledger.updates:
            assert ledger.epsilon(1e-5) == pytest.approx(gaussian_epsilon([(0.5, ledger.updates)], 1e-5))
    every_round = gaussian_epsilon([(0.5, 2)], 1e-5)
    assert result.summary["epsilon"] < every_round


def test_a_round_that_is_interrupted_and_asked_for_again_counts_twice(table: Table) -> None:
    config = own_data_config(*LOCAL, "aggregation.rounds=3")

    class Killed(Exception):
        pass

    def kill_after_the_second_round_was_answered(name: str, kind: str, content: RecordDict) -> RecordDict:
        if Ledger(table.state("west")).updates == 2:
            raise Killed
        return content

    table.tap_reply = kill_after_the_second_round_was_answered
    with pytest.raises(Killed):
        table.train(config)
    table.tap_reply = lambda name, kind, content: content
    table.train(config, resume=True, run=8)
    for name in NAMES:
        assert Ledger(table.state(name)).updates == 4, "rounds 1, 2, 2 and 3"


def test_what_is_refused_or_fails_is_not_counted_as_given_out(table: Table) -> None:
    with pytest.raises(FedpuError):
        table.train(own_data_config("engine.min_clients=4"), change=asks(epochs=50))
    assert Ledger(table.state("north")).updates == 0


def test_a_request_is_answered_once_also_by_a_node_that_was_started_again(table: Table) -> None:
    seen: list[tuple[str, RecordDict]] = []

    def listen(name: str, kind: str, content: RecordDict) -> RecordDict:
        seen.append((kind, RecordDict(dict(content))))
        return content

    table.tap_request = listen
    table.train(own_data_config(*LOCAL, "aggregation.rounds=1"))
    [first] = [content for kind, content in seen if kind == "train.private"][:1]
    assert INVITATION in first
    table.restart("east")
    table.push([Request(1, "train.private", first, "1", 9.0)])
    assert table.refusals[-1] == "This request was answered already."


def test_a_ledger_that_is_damaged_is_not_begun_anew(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.count(Release(UPDATE, "local", 1.0))
    assert Ledger(tmp_path).updates == 1
    for content in ("", "{}", "[]", '{"first": 1}', (tmp_path / "ledger.json").read_text()[:-20]):
        (tmp_path / "ledger.json").write_text(content)
        with pytest.raises(FedpuError, match=r"can't be read .* nobody knows what the node has given out"):
            Ledger(tmp_path)


def test_the_ledger_and_what_a_client_keeps_between_rounds_are_its_owners_alone(table: Table) -> None:
    table.train(own_data_config("aggregation.rounds=1", "aggregation.name=scaffold"))
    kept = list(table.state("north").rglob("*"))
    assert any(path.suffix == ".safetensors" for path in kept)
    for path in (table.state("north"), *(path for path in kept if path.is_file())):
        assert path.stat().st_mode & 0o077 == 0, path
    assert json.loads((table.state("north") / "ledger.json").read_text())["first"]["differential"] == "off"


def test_a_deployment_refuses_noise_that_the_seed_takes_off_again(tmp_path: Path) -> None:
    seeded = own_data_config("privacy.differential=central")
    with pytest.raises(ConfigError, match=r'Set privacy\.noise_source = "system"'):
        create(tmp_path / "own", seeded, ["a", "b"], "localhost:1", trial=False)
    assert not (tmp_path / "own").exists()
    refuse_seeded_noise(seeded, trial=True)
    refuse_seeded_noise(own_data_config(*CENTRAL), trial=False)


def test_settings_of_a_node_are_told_by_name_when_they_can_not_be_used() -> None:
    with pytest.raises(ConfigError, match=r"accepts\.group = 1 can't be used"):
        NodeSettings.parse({"name": "n", "data": "d", "accepts": {"group": 1}})
    with pytest.raises(ConfigError, match=r"no setting 'epsilo'\. Did you mean 'epsilon'"):
        NodeSettings.parse({"name": "n", "data": "d", "accepts": {"epsilo": 1}})
    with pytest.raises(ConfigError, match=r"accepts\.differential = 'all'"):
        NodeSettings.parse({"name": "n", "data": "d", "accepts": {"differential": "all"}})


def test_configurations_that_protect_as_asked_are_accepted() -> None:
    strict = Accepts(differential="local", clip=1.0, noise_multiplier=1.0, secure_aggregation=True, group=4, rounds=9)
    config: Config = own_data_config(*LOCAL, *SECURE, "privacy.clip=0.5", "privacy.noise_multiplier=3")
    strict.refuse(config, "n")
    Accepts().refuse(own_data_config("aggregation.name=fedsgd", "aggregation.batch_size=1"), "n")
