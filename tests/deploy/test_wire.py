"""The commands of 'fedpu deploy init' with clients that have data of their own, and all that such a client sends."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import Message
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from deploy.page import init
from fedpu.data import Dataset
from fedpu.flower.messages import MODEL
from fedpu.flower.processes import Child, children, environment, free_port, listening
from fedpu.flower.salt import SALT, take_salt_off
from fedpu.record import RunDirectory

pytestmark = pytest.mark.nodes

HERE = Path(__file__).parent
SECONDS = 600.0


def write_data(digits: Dataset, folder: Path) -> None:
    """Give 'a' and 'b' the same data but for one pixel and one label, and 'c', which is not watched, the classes that
    they lack and another number of examples: the SuperLink asks nobody for a part that somebody else has sent already.
    """
    x, y = digits.inputs.numpy(), digits.labels.numpy()
    rng = np.random.default_rng(0)
    few, many = x[:200].copy(), y[:200].copy()
    known = np.where((many < 5) & (rng.random(200) < 0.5), many, -1)
    np.savez(folder / "a.npz", x=few, y=known)
    changed, hidden = few.copy(), known.copy()
    changed[7, 0, 4, 4] = changed[7, 0, 4, 4] // 2 + 1
    hidden[np.flatnonzero(known == 2)[0]] = -1
    np.savez(folder / "b.npz", x=changed, y=hidden)
    np.savez(folder / "c.npz", x=x[200:390], y=np.where(y[200:390] >= 5, y[200:390], -1))


@pytest.fixture(scope="module")
def captured(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the page's commands, with two of the nodes watched; give the folder of the deployment."""
    base = tmp_path_factory.mktemp("wire")
    folder, port = base / "deployment", free_port()
    settings = ["data.name=digits", "priors.source=given", "priors.values=0.1", "model.name=mlp", "model.hidden=[16]"]
    settings += ["aggregation.rounds=2", "aggregation.lr=0.1", "engine.wait=600"]
    page = init(folder, port, "a,b,c", settings, "--own-data")
    write_data(digits, folder / "nodes")
    home = folder / "flower"
    with children() as started:

        def start(command: list[str], name: str) -> None:
            started.append(Child(command, home, base / f"{name}.log", cwd=folder))

        def run(command: list[str]) -> None:
            subprocess.run(command, check=True, cwd=folder, env=environment(home), timeout=SECONDS, capture_output=True)

        [superlink] = page["1. The server"]
        start(superlink, "superlink")
        started[0].wait_for(lambda: listening(port), SECONDS, "begun to listen")
        for command in page["2. Let the nodes in"]:
            run(command)
        watched = [sys.executable, str(HERE / "watched_node.py")]
        for name, honest in zip("abc", page["3. The nodes, each on its own machine"], strict=True):
            start(honest if name == "c" else [*watched, honest[-1], str(base / f"{name}.capture")], name)
        [command] = page["4. The run"]
        run([part for part in command if part != "--stream"])
        done = RunDirectory(folder / "run")
        started[0].wait_for(lambda: done.result() is not None, SECONDS, f"finished the run in {folder}")
        yield base


def sent(capture: Path) -> list[tuple[str, Any]]:
    found = []
    with capture.open("rb") as file:
        while True:
            try:
                found.append(pickle.load(file))
            except EOFError:
                return found


def replies(folder: Path, name: str) -> list[Message]:
    """Put together the messages that a node has sent, of parts that it or the other watched one was asked for."""
    parts, roots = {}, []
    for node in "ab":
        for path, body in sent(folder / f"{node}.capture"):
            if path.endswith("push-object"):
                pushed = PushObjectRequest.FromString(body)
                parts[pushed.object_id] = pushed.object_content
            if path.endswith("push-messages") and node == name:
                roots += [tree.object_id for tree in PushMessagesRequest.FromString(body).message_object_trees]
    return [inflate_object_from_contents(root, parts, keep_object_contents=True) for root in roots]  # type: ignore[misc]


def listed(message: Message) -> dict[str, dict[str, Any]]:
    take_salt_off(message.content)
    return {name: dict(record) for name, record in message.content.items()}


def test_the_run_is_recorded_and_measured(captured: Path) -> None:
    run = RunDirectory(captured / "deployment" / "run")
    assert run.members().names == ["a", "b", "c"]
    assert run.members().examples == [200, 200, 190]
    assert [line["clients"] for line in run.rounds()] == [3, 3]
    assert all(line["risk"] == {} for line in run.rounds())
    total = np.array(run.members().co_negatives)
    assert total.diagonal().tolist() == [1.0] * 5 + [2.0] * 5


def test_a_client_sends_counts_its_part_of_the_one_sum_and_updates_and_nothing_else(captured: Path) -> None:
    messages = replies(captured, "a")
    assert [message.metadata.message_type for message in messages] == [
        "query.join",
        "query.negatives",
        "train",
        "train",
    ]
    join, negatives, first, second = map(listed, messages)
    assert join == {
        "client": {"name": "a", "shape": [1, 8, 8], "dtype": "uint8", "classes": []},
        "counts": {"examples": 200},
    }
    assert {name: list(record) for name, record in negatives.items()} == {"part": ["weight", "values"]}
    for update in (first, second):
        assert {name: list(record) for name, record in update.items()} == {"model": ["model"], "counts": ["examples"]}


def test_all_but_the_update_is_the_same_for_data_that_differ_in_an_example_and_a_label(captured: Path) -> None:
    ours, theirs = ([listed(m) for m in replies(captured, name)] for name in "ab")
    assert ours[0].pop("client").keys() == theirs[0].pop("client").keys()  # the name, and the shape as listed above
    for mine, other in zip(ours[:2], theirs[:2], strict=True):
        assert str(mine) == str(other)
    for mine, other in zip(ours[2:], theirs[2:], strict=True):
        assert mine.pop("model") != other.pop("model")
        assert mine == other


def test_everything_else_is_small_and_goes_to_the_superlink_alone(captured: Path) -> None:
    traffic = sent(captured / "a.capture")
    addresses = {what for path, what in traffic if path == "connect"}
    assert {host for host, *_ in addresses} == {"127.0.0.1"}
    assert len({port for _, port, *_ in addresses}) == 1
    asked = {path.rpartition("/")[2]: len(body) for path, body in traffic if path.startswith("/")}
    assert asked.keys() <= {
        *("activate-node", "send-node-heartbeat", "pull-messages", "pull-object", "confirm-message-received"),
        *("push-messages", "push-object"),
    }
    assert max(size for path, size in asked.items() if not path.startswith("push")) < 400


def test_a_request_says_besides_who_sends_it_and_with_what_programs_and_a_reply_how_long_it_took(
    captured: Path,
) -> None:
    traffic = sent(captured / "a.capture")
    said = [(name, value) for what, content in traffic if what == "headers" for name, value in content.items()]
    changing = {"host", "content-length", "flwr-public-key", "flwr-timestamp", "flwr-signature"}
    assert {name for name, _ in said} >= changing, "headers are among what is written down"
    same = dict(said)
    assert {name: same[name] for name in same.keys() - changing} == {
        "accept": "application/protobuf",
        "accept-encoding": "gzip, deflate",
        "connection": "keep-alive",
        "content-type": "application/protobuf",
        "fedpu-waits": "1",
        "flwr-component-name": "SuperNode",
        "flwr-package-name": "flwr",
        "flwr-package-version": version("flwr"),
        "user-agent": f"python-httpx/{version('httpx')}",
    }
    pushed = [PushMessagesRequest.FromString(body) for path, body in traffic if path.endswith("push-messages")]
    fields = {field.name for one in pushed for field, _ in one.ListFields()}
    assert fields == {"node", "messages_list", "message_object_trees", "clientapp_runtime_list"}
    about = {field.name for one in pushed for field, _ in one.messages_list[0].metadata.ListFields()}
    assert about <= {
        *("run_id", "message_id", "src_node_id", "dst_node_id", "reply_to_message_id", "group_id", "ttl"),
        *("message_type", "created_at", "dst_task_id"),
    }


def test_no_part_that_is_about_a_client_has_a_hash_that_others_could_guess(captured: Path) -> None:
    parts = [(name, record) for reply in replies(captured, "a") for name, record in reply.content.items()]
    salts = [str(record[SALT]) for name, record in parts if name != MODEL]
    assert len(set(salts)) == len(salts) >= 5
