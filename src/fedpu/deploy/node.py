"""A node of a deployment in one warm process: Flower's connection to the SuperLink, and fedpu's ClientApp beside it.

``flower-supernode`` runs the same ClientApp, but starts a process for every message and looks for messages every three
seconds. This one keeps data and network in memory, and it never runs code that the server sends: the app that comes
with a run is not even fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects, push_objects
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.fleet_http_connection import http_request_response

from fedpu.deploy.client import NODE_FILE, deployed_app
from fedpu.deploy.settings import NodeSettings
from fedpu.errors import ConfigError

POLL = 0.2
"""seconds between two looks for a message"""
RECONNECT = 3.0

Keys = tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]


def run_node(path: Path, tell: Callable[[str], None]) -> None:
    """Connect as a node's file says, and answer until the process is stopped."""
    settings = NodeSettings.load(path)
    keys, certificates = _keys(settings), _certificates(settings)
    app = deployed_app()
    config: dict[str, Any] = {NODE_FILE: str(path.resolve())}
    while True:
        with http_request_response(settings.superlink, settings.insecure, certificates, keys) as connection:
            tell(f"'{settings.name}' is connected to {settings.superlink}")
            _Node(connection, app, config, tell).answer_messages()
        tell(f"the connection to {settings.superlink} is lost; trying again in {RECONNECT:g} seconds")
        time.sleep(RECONNECT)


class _Node:
    """Receives messages from the SuperLink, has them answered by the ClientApp, and sends the replies."""

    def __init__(self, connection: Any, app: ClientApp, config: dict[str, Any], tell: Callable[[str], None]) -> None:
        number, receive, send, _get_run, _get_fab, pull, push, confirm = connection
        self._number: int = number
        self._receive, self._send = receive, send
        self._pull, self._push, self._confirm = pull, push, confirm
        self._app = app
        self._config = config
        self._tell = tell
        self._contexts: dict[int, Context] = {}

    def answer_messages(self) -> None:
        while True:
            try:
                received = self._receive()
                if received is None:
                    time.sleep(POLL)
                    continue
                message = self._inflated(*received)
                self._tell(
                    f"run {message.metadata.run_id}: {message.metadata.message_type} {message.metadata.group_id}"
                )
                started = time.monotonic()
                self._reply(self._answer(message), time.monotonic() - started)
            except RunNotRunningException:
                self._tell("the run has ended; its message is dropped")

    def _inflated(self, head: Message, tree: Any) -> Message:
        """Fetch the parts of a message."""
        run, number = head.metadata.run_id, head.metadata.message_id
        parts = pull_objects([part.object_id for part in iterate_object_tree(tree)], lambda name: self._pull(run, name))
        self._confirm(run, number)
        message: Any = inflate_object_from_contents(tree.object_id, parts)
        message.metadata.__dict__["_message_id"] = number
        return message  # type: ignore[no-any-return]

    def _answer(self, message: Message) -> Message:
        try:
            return self._app(message=message, context=self._context(message.metadata.run_id))
        except Exception as error:  # whatever a user's own model or data function raises must not end the node
            self._tell(f"{type(error).__name__}: {error}")
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)

    def _context(self, run: int) -> Context:
        """Return what the node keeps of a run between its messages."""
        if run not in self._contexts:
            self._contexts[run] = Context(
                run_id=run, node_id=self._number, node_config=self._config, state=RecordDict(), run_config={}
            )
        return self._contexts[run]

    def _reply(self, reply: Message, seconds: float) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
        run = reply.metadata.run_id
        with no_object_id_recompute():
            wanted, session = self._send(reply, get_object_tree(reply), seconds)
            push_objects(
                get_all_nested_objects(reply),
                lambda name, content: self._push(run, session, name, content),
                object_ids_to_push=set(wanted),
            )


def _keys(settings: NodeSettings) -> Keys | None:
    if settings.insecure:
        return None
    if settings.key is None:
        raise ConfigError(
            f"'{settings.name}' has no key: set 'key' to the file of its private key, or insecure = true."
        )
    try:
        key = load_ssh_private_key(Path(settings.key).read_bytes(), None)
    except OSError as error:
        raise ConfigError(f"The key '{settings.key}' can't be read: {error.strerror}.") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"'{settings.key}' is not a private key without a password: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"'{settings.key}' is no key of a NIST curve: make one with 'fedpu deploy key'.")
    return key, key.public_key()


def _certificates(settings: NodeSettings) -> bytes | None:
    if settings.root_certificates is None:
        return None
    try:
        return Path(settings.root_certificates).read_bytes()
    except OSError as error:
        raise ConfigError(f"The certificate '{settings.root_certificates}' can't be read: {error.strerror}.") from error
