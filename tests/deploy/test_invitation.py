"""What a node answers: requests of a run that the server's owner has invited it to, as they were signed, once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata

from deploy.in_process import own_data_config
from fedpu.deploy import NodeSettings
from fedpu.deploy.certificates import write_node_key
from fedpu.deploy.client import NODE_FILE, deployed_app
from fedpu.deploy.control import start_run
from fedpu.deploy.folder import create
from fedpu.deploy.invitation import NotInvited, RunKey, new_owner_key, read_owner_key
from fedpu.deploy.invited import INVITATION, SignedWire, refuse_uninvited
from fedpu.deploy.node import run_node
from fedpu.deploy.protocol import JOIN, RUN
from fedpu.errors import ConfigError
from fedpu.flower.wire import Request, Wire

CONFIG = "seed = 1\n"
RUN_NUMBER, NODE = 7, 5
PRIVATE, PUBLIC = new_owner_key()
OWNER = read_owner_key(PRIVATE)


class Kept(Wire):
    """A wire that ends here."""

    def __init__(self) -> None:
        self.sent: list[Request] = []

    def nodes(self) -> list[int]:
        return [NODE]

    def push(self, requests: Any) -> list[str | None]:
        self.sent += requests
        return ["1" for _ in requests]

    def pull(self, numbers: Any) -> list[Message]:
        return []


def signed(key: RunKey | None = None, run: int = RUN_NUMBER, node: int = NODE) -> RecordDict:
    """Return a request as a server sends it."""
    content = RecordDict(
        {
            RUN: ConfigRecord({"config": CONFIG, "card": "", "clients": 2}),
            "model": ArrayRecord({"w": Array(np.arange(6.0))}),
        }
    )
    wire = Kept()
    SignedWire(wire, run, key or RunKey.create(OWNER, run, [CONFIG], 1.0)).push([Request(node, JOIN, content, "", 9.0)])
    assert INVITATION not in content, "the message of another node is not touched"
    return wire.sent[0].content


def context() -> Context:
    return Context(run_id=RUN_NUMBER, node_id=NODE, node_config={}, state=RecordDict(), run_config={})


def received(content: RecordDict, kind: str = JOIN, run: int = RUN_NUMBER) -> Message:
    """Return a message as a node gets it."""
    about = Metadata(run, "1", 1, NODE, "", "", time.time(), 60.0, kind)
    return make_message(about, content)


class Ask(Protocol):
    """Hands a request to a node; raises what it refuses with."""

    def __call__(self, content: RecordDict, kind: str = JOIN, run: int = RUN_NUMBER) -> None: ...


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    node = NodeSettings(name="n", data="d", server_key=PUBLIC, state=str(tmp_path))
    return lambda content, kind=JOIN, run=RUN_NUMBER: refuse_uninvited(node, received(content, kind, run), context())


def test_an_invited_node_answers(ask: Ask) -> None:
    ask(signed())


def without_invitation(content: RecordDict) -> None:
    del content[INVITATION]


def with_other_numbers(content: RecordDict) -> None:
    content["model"] = ArrayRecord({"w": Array(np.arange(6.0) + 1)})


def with_another_record(content: RecordDict) -> None:
    content["more"] = ConfigRecord({"a": 1})


def with_another_config(content: RecordDict) -> None:
    content[RUN] = ConfigRecord({"config": "seed = 2\n", "card": "", "clients": 2})


def that_cannot_be_read(content: RecordDict) -> None:
    content[INVITATION] = ConfigRecord({"statement": 1})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without_invitation, "was not invited"),
        (with_other_numbers, "changed on its way"),
        (with_another_record, "changed on its way"),
        (with_another_config, "changed on its way"),
        (that_cannot_be_read, "can't be read"),
    ],
)
def test_a_request_that_was_changed_is_refused(ask: Ask, change: Callable[[RecordDict], None], told: str) -> None:
    content = signed()
    change(content)
    with pytest.raises(NotInvited, match=told):
        ask(content)


def test_a_request_is_for_one_node_one_kind_and_one_run(ask: Ask) -> None:
    with pytest.raises(NotInvited, match="not signed for this node"):
        ask(signed(node=NODE + 1))
    with pytest.raises(NotInvited, match="not signed for this node"):
        ask(signed(), kind="train")
    with pytest.raises(NotInvited, match="The invitation is to run 7, and this is run 8"):
        ask(signed(), run=8)


def test_the_key_of_one_run_signs_nothing_for_another(ask: Ask) -> None:
    key = RunKey.create(OWNER, RUN_NUMBER + 1, [CONFIG], 1.0)
    with pytest.raises(NotInvited, match="The invitation is to run 8"):
        ask(signed(key))


def test_an_invitation_ends_and_is_for_its_configuration_and_by_its_owner(ask: Ask) -> None:
    with pytest.raises(NotInvited, match="has ended"):
        ask(signed(RunKey.create(OWNER, RUN_NUMBER, [CONFIG], -1.0)))
    with pytest.raises(NotInvited, match="The configuration is not the one"):
        ask(signed(RunKey.create(OWNER, RUN_NUMBER, ["seed = 2\n"], 1.0)))
    stranger = read_owner_key(new_owner_key()[0])
    with pytest.raises(NotInvited, match="not signed by the owner"):
        ask(signed(RunKey.create(stranger, RUN_NUMBER, [CONFIG], 1.0)))


def test_a_request_is_answered_once(ask: Ask) -> None:
    content = signed()
    ask(content)
    with pytest.raises(NotInvited, match="answered already"):
        ask(content)
    ask(signed())


def test_every_kind_of_message_is_refused_without_an_invitation(tmp_path: Path) -> None:
    (tmp_path / "n.toml").write_text(f'name = "n"\ndata = "n.npz"\nserver_key = "{PUBLIC}"\n')
    about, app = context(), deployed_app()
    about.node_config[NODE_FILE] = str(tmp_path / "n.toml")
    for kind in ("train", "train.private", "train.secure", JOIN, "query.negatives", "query.secure_join"):
        reply = app(received(RecordDict(), kind), about)
        assert reply.has_error(), kind
        assert "was not invited" in str(reply.error.reason), kind


def test_a_node_that_cannot_tell_who_invites_it_does_not_start(tmp_path: Path) -> None:
    write_node_key(tmp_path / "key")
    file = tmp_path / "n.toml"
    file.write_text('name = "n"\ndata = "n.npz"\nkey = "key"\n')
    with pytest.raises(ConfigError, match="does not know who may invite it"):
        run_node(file, print)
    file.write_text('name = "n"\ndata = "n.npz"\nkey = "key"\nserver_key = "ssh-ed25519 AAAA"\n')
    with pytest.raises(ConfigError, match="can't be read"):
        run_node(file, print)
    with pytest.raises(NotInvited, match="no 'server_key'"):
        refuse_uninvited(NodeSettings(name="n", data="d"), received(signed()), context())


def test_a_trial_without_keys_answers_anybody() -> None:
    open_to_all = NodeSettings(name="n", data="d", insecure=True)
    refuse_uninvited(open_to_all, received(RecordDict()), context())


def test_and_says_so_before_it_connects(tmp_path: Path) -> None:
    (tmp_path / "n.toml").write_text('name = "n"\ndata = "n.npz"\ninsecure = true\n')

    class Said(Exception):
        pass

    def tell(text: str) -> None:
        raise Said(text)

    with pytest.raises(Said, match=r"it answers any run .* can be read and changed on its way"):
        run_node(tmp_path / "n.toml", tell)


def test_a_run_without_an_invitation_of_the_owner_is_none(tmp_path: Path) -> None:
    """The owner's key may be kept elsewhere: without it nobody starts a run that nodes answer."""
    config = own_data_config()
    here = create(tmp_path / "run", config, ["a", "b"], "localhost:1", trial=False)
    here.owner_key.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"owner\.key' can't be read"):
        start_run(here, here.app, tmp_path / "out")
    with pytest.raises(ConfigError, match="was never started"):  # the key is good, and the server is asked next
        start_run(here, here.app, tmp_path / "out", owner_key=tmp_path / "elsewhere")


def test_a_run_whose_noise_the_seed_takes_off_again_is_not_started(tmp_path: Path) -> None:
    here = create(tmp_path / "run", own_data_config(), ["a", "b"], "localhost:1", trial=False)
    seeded = own_data_config("privacy.differential=central")
    with pytest.raises(ConfigError, match="protects nobody in a deployment"):
        start_run(here, here.app, tmp_path / "out", configs=[seeded])


def test_the_key_of_a_run_survives_its_file(ask: Ask) -> None:
    key = RunKey.create(OWNER, RUN_NUMBER, [CONFIG], 1.0)
    assert RunKey.load(key.dump()) == key
    ask(signed(RunKey.load(key.dump())))
