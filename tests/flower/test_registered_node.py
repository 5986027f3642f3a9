"""What Flower lets a node with a registered key do with the messages of others: docs/deploy.md says how far that goes.

Flower's own handlers and state, in this process; the signatures before them are tested on a deployment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import Message, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.common.constant import NOOP_FLWR_AID
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.serverapp import Grid
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation.noop_federation_manager import NoOpFederationManager
from flwr.superlink.servicer.fleet import fleet_handlers

from fedpu.deploy.protocol import SECURE, pack_part, pack_secure
from fedpu.flower.grid import GridWire
from fedpu.flower.messages import MODEL, WORK, pack_sent, pack_work
from fedpu.flower.private import (
    get_all_nested_objects,
    get_object_tree,
    http_grid,
    message_to_proto,
    remove_content_from_message,
)
from fedpu.flower.salt import salt, take_salt_off
from fedpu.flower.wire import Request
from fedpu.privacy.mechanism import Vector
from fedpu.privacy.secagg import Inbox, Neighbourhood, Rules, SecureClient
from fedpu.round import Broadcast, Work

SERVER = 1
Content = dict[str, bytes]


@dataclass
class Link:
    """A SuperLink with a run, an honest node and one that is curious."""

    state: InMemoryLinkState
    store: InMemoryObjectStore
    run: int
    honest: int
    curious: int

    def push(self, message: Message, session: str | None = None) -> tuple[bool, Content]:
        """Announce a message and send its parts; say whether it was taken, and give the parts by their hashes."""
        message.metadata.__dict__["_message_id"] = message.object_id
        heads = [message_to_proto(remove_content_from_message(message))]
        wish = PushMessagesRequest(messages_list=heads, message_object_trees=[get_object_tree(message)])
        answer = fleet_handlers.push_messages(wish, self.state)
        parts = {number: part.deflate() for number, part in get_all_nested_objects(message).items()}
        for number in answer.objects_to_push:
            self.push_part(number, parts[number], answer.session_id if session is None else session)
        return bool(answer.objects_to_push), parts

    def push_part(self, number: str, content: bytes, session: str) -> bool:
        wish = PushObjectRequest(run_id=self.run, session_id=session, object_id=number, object_content=content)
        return bool(fleet_handlers.push_object(wish, self.state).stored)

    def pull_part(self, number: str) -> bytes:
        """Ask for a part as the curious node."""
        wish = PullObjectRequest(node=Node(node_id=self.curious), run_id=self.run, object_id=number)
        return bytes(fleet_handlers.pull_object(wish, self.state).object_content)

    def asked(self, node: int) -> list[Any]:
        wish = PullMessagesRequest(node=Node(node_id=node))
        return list(fleet_handlers.pull_messages(wish, self.state, self.store).messages_list)

    def message(self, content: RecordDict, sender: int, receiver: int, reply_to: str = "") -> Message:
        kind = "query.negatives"
        return make_message(Metadata(self.run, "", sender, receiver, reply_to, "", time.time(), 60.0, kind), content)


@pytest.fixture
def link() -> Link:
    store = InMemoryObjectStore()
    state = InMemoryLinkState(NoOpFederationManager(), store)
    nodes = [state.create_node(NOOP_FLWR_AID, "", name.encode(), 30.0, name=name) for name in ("honest", "curious")]
    for node in nodes:
        assert state.activate_node(node, 30.0)
    run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
    task = state.get_run_info(run_ids=[run])[0].primary_task_id
    assert task is not None
    assert state.claim_task(task)
    assert state.activate_task(task)
    return Link(state, store, run, *nodes)


def question(link: Link) -> str:
    """Have the server ask the honest node something; return the hash by which the question goes."""
    message = link.message(RecordDict(), SERVER, link.honest)
    taken, _ = link.push(message)
    assert taken
    return str(message.metadata.message_id)


def part_of(negatives: list[int]) -> Vector:
    negative = np.isin(np.arange(10), negatives).astype(float)
    return np.outer(negative, negative).reshape(-1)


def under_masks(part: Vector) -> RecordDict:
    """Return a part as it leaves a client of a secure sum of two."""
    rules = Rules(2, len(part), 1.0, bits=2)
    (one, mine), (other, theirs) = SecureClient.join(0, rules), SecureClient.join(1, rules)
    one, _ = one.share(Neighbourhood([1], [theirs.mask_key], [theirs.seal_key]))
    _, shares = other.share(Neighbourhood([0], [mine.mask_key], [mine.seal_key]))
    _, vector = one.mask(Inbox([1], shares.sealed), 1, part)
    return RecordDict({SECURE: pack_secure(vector)})


def in_the_open(part: Vector) -> RecordDict:
    return pack_part(1, part)


def as_nodes_send_it(part: Vector) -> RecordDict:
    return salt(pack_part(1, part), (MODEL,))


@pytest.mark.parametrize(
    ("packed", "confirmed"), [(in_the_open, True), (as_nodes_send_it, False), (under_masks, False)]
)
def test_a_guess_of_anothers_classes_is_confirmed_by_a_bare_part_and_not_by_those_that_nodes_send(
    link: Link, packed: Callable[[Vector], RecordDict], confirmed: bool
) -> None:
    """A registered node asks for the hash of every part that another could have sent."""
    link.push(link.message(packed(part_of([3, 4, 7])), link.honest, SERVER, question(link)))
    found = []
    for guess in ([3, 4], [3, 4, 7], [7]):
        for record in packed(part_of(guess)).values():
            if link.pull_part(record.object_id):
                found.append(guess)
    assert found == ([[3, 4, 7]] if confirmed else [])


class Sent(Grid):
    """Flower's way out of a ServerApp, which ends here."""

    messages: list[Message]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self.messages = list(messages)
        return ["1" for _ in self.messages]


Sent.__abstractmethods__ = frozenset()  # the rest is not asked for


def test_nobody_can_guess_who_was_drawn_by_the_work_that_is_asked_for(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody knows what the work of a round is: only whether it was sent is a secret, with a secret draw."""
    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, link.run)  # as in the process of a ServerApp
    monkeypatch.setattr(http_grid, "pull_objects", http_grid.pull_objects)  # which a wire changes
    content = pack_work(pack_sent(Broadcast({"w": torch.zeros(2)})), Work(client=3, round=0, lr=0.1))
    grid: Any = Sent()
    GridWire(grid).push([Request(link.honest, "train", content, "1", 9.0)])
    [message] = grid.messages
    link.push(link.message(message.content, SERVER, link.honest))
    assert not link.pull_part(content[WORK].object_id)
    assert link.pull_part(content[MODEL].object_id), "what all are sent is kept once for all"
    take_salt_off(message.content)
    assert dict(message.content[WORK]) == dict(content[WORK])


def test_whoever_knows_the_hash_of_a_message_can_delete_it(link: Link) -> None:
    number = question(link)
    wish = ConfirmMessageReceivedRequest(node=Node(node_id=link.curious), run_id=link.run, message_object_id=number)
    fleet_handlers.confirm_message_received(wish, link.state, link.store)
    assert link.asked(link.honest) == []


def test_a_part_is_written_only_where_it_was_announced_and_only_as_it_was(link: Link) -> None:
    message = link.message(in_the_open(part_of([1])), link.honest, SERVER, question(link))
    message.metadata.__dict__["_message_id"] = message.object_id
    heads = [message_to_proto(remove_content_from_message(message))]
    wish = PushMessagesRequest(messages_list=heads, message_object_trees=[get_object_tree(message)])
    [number, *_] = fleet_handlers.push_messages(wish, link.state).objects_to_push
    parts = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
    other = in_the_open(part_of([2]))["part"]
    assert not link.push_part(number, parts[number], "made up"), "of somebody else's transfer"
    for session in ("made up", ""):
        assert not link.push_part(number, other.deflate(), session), "something else in its place"
        assert not link.push_part(other.object_id, other.deflate(), session), "that nobody has announced"
    assert link.push_part(number, parts[number], ""), "Flower takes the right bytes from anybody"


def test_a_message_in_the_servers_name_reaches_another_node_and_a_reply_needs_the_hash_of_its_question(
    link: Link,
) -> None:
    """The node refuses it, since no run has signed it: tests/deploy/test_invitation.py."""
    link.push(link.message(RecordDict(), SERVER, link.honest))
    assert len(link.asked(link.honest)) == 1
    asked = question(link)
    for wrong in ("0" * 64, asked[:-1] + ("0" if asked[-1] != "0" else "1")):
        taken, _ = link.push(link.message(RecordDict(), link.honest, SERVER, wrong))
        assert not taken
    taken, _ = link.push(link.message(RecordDict(), link.honest, SERVER, asked))
    assert taken
