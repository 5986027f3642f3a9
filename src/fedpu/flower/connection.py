"""A node's connection to the SuperLink, over Flower's own client: signed requests, TLS, a heartbeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message

from fedpu.errors import ConfigError
from fedpu.flower.messages import MODEL
from fedpu.flower.private import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    FleetHttpClient,
    FlowerError,
    Node,
    NodeAuthHttpInterceptor,
    ObjectPullError,
    ObjectPushError,
    ProtobufCall,
    ProtobufClientInterceptor,
    ProtobufRequestContext,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    RuntimeVersionHttpInterceptor,
    SendNodeHeartbeatRequest,
    generate_key_pairs,
    get_all_nested_objects,
    get_object_tree,
    inflate_object_from_contents,
    iterate_object_tree,
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
    message_from_proto,
    message_to_proto,
    no_object_id_recompute,
    public_key_to_bytes,
    pull_objects,
    push_objects,
    remove_content_from_message,
)
from fedpu.flower.salt import salt
from fedpu.flower.wire import PART_DELAY, WAITS

BEAT = 10.0
"""the shortest heartbeat that Flower takes; after two of them without a sign a node counts as gone"""
RETRY = 1.0
ALREADY_HERE = 2.5 * BEAT
"""seconds for which a SuperLink may take a node that was killed to be still there"""

Keys = tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]
Answer = TypeVar("Answer")


class Dropped(Exception):
    """The SuperLink does not want this any more: the run has ended, or the message is too late."""


class Patient:
    """Says with every question for messages that the answer may take its time; see ``patience.py``."""

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Add the header."""
        if isinstance(context.message, PullMessagesRequest):
            context.request.headers[WAITS] = "1"
        return call_next(context)


class Connection:
    """A node that the SuperLink has let in."""

    def __init__(self, client: FleetHttpClient, node: Node) -> None:
        self._client = client
        self._node = node
        self.number = int(node.node_id)

    def receive(self) -> Message | None:
        """Return the next message with all of its parts, or nothing."""
        answer = self._patiently(self._client.PullMessages, PullMessagesRequest(node=self._node))
        if not answer.messages_list:
            return None
        head, tree = message_from_proto(answer.messages_list[0]), answer.message_object_trees[0]
        run = head.metadata.run_id
        fetch = make_pull_object_fn_protobuf(self._asking(self._client.PullObject), self._node, run)
        try:
            parts = pull_objects(
                [part.object_id for part in iterate_object_tree(tree)], fetch, initial_backoff=PART_DELAY
            )
        except ObjectPullError as error:
            raise Dropped from error
        confirm = make_confirm_message_received_fn_protobuf(
            self._asking(self._client.ConfirmMessageReceived), self._node, run
        )
        confirm(head.metadata.message_id)
        message: Any = inflate_object_from_contents(tree.object_id, parts)
        message.metadata.__dict__["_message_id"] = head.metadata.message_id
        return message  # type: ignore[no-any-return]

    def send(self, reply: Message, seconds: float) -> None:
        """Send a reply that took so many seconds."""
        if reply.has_content():
            reply.content = salt(reply.content, (MODEL,))
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            answer = self._patiently(
                self._client.PushMessages,
                PushMessagesRequest(
                    node=self._node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[get_object_tree(reply)],
                    clientapp_runtime_list=[seconds],
                ),
            )
            push = make_push_object_fn_protobuf(
                self._asking(self._client.PushObject), self._node, reply.metadata.run_id, answer.session_id
            )
            try:
                push_objects(get_all_nested_objects(reply), push, object_ids_to_push=set(answer.objects_to_push))
            except ObjectPushError as error:
                raise Dropped from error

    def beat(self) -> None:
        """Tell the SuperLink that the node is there."""
        self._client.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=BEAT))

    def _asking(self, call: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
        return lambda request: self._patiently(call, request)

    def _patiently(self, call: Callable[[Any], Answer], request: Any) -> Answer:
        """Ask again and again while the SuperLink is away."""
        while True:
            try:
                return call(request)
            except httpx.TransportError:
                time.sleep(RETRY)
            except httpx.HTTPStatusError as error:
                if error.response.status_code == httpx.codes.FORBIDDEN:
                    raise Dropped from error
                if error.response.status_code < 500:
                    raise
                time.sleep(RETRY)


@contextmanager
def connected(
    address: str, insecure: bool, certificates: bytes | None, keys: Keys | None, tell: Callable[[str], None]
) -> Iterator[Connection]:
    """Connect a node, and take leave at the end. Without keys of its own it asks to be registered with new ones."""
    private, public = keys or generate_key_pairs()
    signed: list[ProtobufClientInterceptor] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(private, public),
        Patient(),
    ]
    with FleetHttpClient.from_server_address(address, insecure, certificates, signed) as client:
        if keys is None:
            _ask(lambda: client.RegisterNode(RegisterNodeFleetRequest(public_key=public_key_to_bytes(public))), tell)
        wish = ActivateNodeRequest(public_key=public_key_to_bytes(public), heartbeat_interval=BEAT)
        node = Node(node_id=_ask(lambda: client.ActivateNode(wish), tell, ALREADY_HERE).node_id)
        connection, left = Connection(client, node), threading.Event()
        heart = threading.Thread(target=_beat, args=(connection, left), daemon=True)
        heart.start()
        try:
            yield connection
        finally:
            left.set()
            heart.join()
            with suppress(httpx.HTTPError):
                client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))


def _ask(call: Callable[[], Answer], tell: Callable[[str], None], patience: float = 0.0) -> Answer:
    """Ask for admission; wait for a SuperLink that is not there yet, and for ``patience`` seconds for one that refuses.

    A SuperLink refuses a node that it does not know, and in the same words one that it believes to be there already.
    """
    end, last_reason = time.monotonic() + patience, ""
    while True:
        try:
            return call()
        except httpx.HTTPStatusError as error:
            refusal = FlowerError.from_json(error.response.text)
            reason = f"[code {refusal.code}] {refusal.message}" if refusal else str(error)
            if error.response.status_code < 500 and time.monotonic() >= end:
                raise ConfigError(
                    f"The SuperLink refuses this node: {reason} Is its public key registered ('fedpu deploy "
                    "register'), and is it not connected a second time?"
                ) from error
        except httpx.TransportError as error:
            if any(word in str(error).lower() for word in ("certificate", "ssl", "tls", "disconnected")):
                raise ConfigError(
                    f"There is no TLS connection to the SuperLink with these settings: {error}."
                ) from error
            reason = f"The SuperLink can't be reached: {error}."
        if reason != last_reason:
            tell(f"{reason} Trying again.")
            last_reason = reason
        time.sleep(RETRY)


def _beat(connection: Connection, left: threading.Event) -> None:
    while not left.is_set():
        with suppress(httpx.HTTPError):
            connection.beat()
        left.wait(BEAT / 2)
