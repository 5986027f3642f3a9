"""A node of a deployment in one warm process: Flower's connection to the SuperLink, and fedpu's ClientApp beside it.

``flower-supernode`` runs the same ClientApp, but starts a process for every message and looks for messages every three
seconds. This one keeps data and network in memory, and it never runs code that the server sends: the app that comes
with a run is not even fetched.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpu.deploy.client import NODE_FILE, deployed_app
from fedpu.deploy.invitation import read_owner_line
from fedpu.deploy.secure_client import read_key
from fedpu.deploy.settings import NodeSettings
from fedpu.errors import ConfigError
from fedpu.flower.connection import Connection, Dropped, Keys, connected
from fedpu.flower.private import ErrorCode
from fedpu.privacy.accountant import need_dp_accounting

POLL, LONGEST_POLL, POLL_SHARE = 0.2, 3.0, 0.05
"""seconds between two looks for a message: a share of the time since the last one, within bounds"""
Tell = Callable[[str], None]


def run_node(path: Path, tell: Tell) -> None:
    """Connect as a node's file says, and answer until the process is stopped."""
    settings = NodeSettings.load(path)
    keys, certificates = _keys(settings), _certificates(settings)
    _check_server_key(settings, tell)
    if settings.accepts is not None and settings.accepts.epsilon is not None:
        need_dp_accounting()  # to know what it has spent
    node = Node(deployed_app(), {NODE_FILE: str(path.resolve())}, tell)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # take leave of the SuperLink on the way out
    while True:
        try:
            with connected(settings.superlink, settings.insecure, certificates, keys, tell) as connection:
                tell(f"'{settings.name}' is connected to {settings.superlink}")
                node.answer_messages(connection)
        except httpx.HTTPError as error:
            tell(f"the connection to {settings.superlink} is lost ({error}); connecting again")


class Node:
    """Has messages answered by the ClientApp, in this process, and keeps what a run leaves between them."""

    def __init__(self, app: ClientApp, config: dict[str, Any], tell: Tell) -> None:
        self._app = app
        self._config = config
        self._tell = tell
        self._contexts: dict[int, Context] = {}

    def answer_messages(self, connection: Connection) -> None:
        """Answer one message after another, as long as the connection holds."""
        last = time.monotonic()
        while True:
            try:
                asked = time.monotonic()
                message = connection.receive()
                if message is None:
                    # A SuperLink of ours has let the node wait for the answer; Flower's own answers at once.
                    pause = min(LONGEST_POLL, max(POLL, POLL_SHARE * (time.monotonic() - last)))
                    time.sleep(max(0.0, asked + pause - time.monotonic()))
                    continue
                about = message.metadata
                self._tell(f"run {about.run_id}: {about.message_type} {about.group_id}")
                started = time.monotonic()
                reply = self._answer(message, connection.number)
                connection.send(reply, time.monotonic() - started)
                last = time.monotonic()
            except Dropped:
                self._tell("the run does not wait for this any more")

    def _answer(self, message: Message, number: int) -> Message:
        try:
            return self._app(message=message, context=self._context(message.metadata.run_id, number))
        except Exception as error:  # whatever a user's own model or data function raises must not end the node
            reason = f"{type(error).__name__}: {error}"
            self._tell(reason)
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)

    def _context(self, run: int, number: int) -> Context:
        """Return what the node keeps of a run between its messages."""
        if run not in self._contexts:
            self._contexts[run] = Context(
                run_id=run, node_id=number, node_config=self._config, state=RecordDict(), run_config={}
            )
        return self._contexts[run]


def _check_server_key(settings: NodeSettings, tell: Tell) -> None:
    if settings.server_key is not None:
        read_owner_line(settings.server_key)
    elif not settings.insecure:
        raise ConfigError(
            f"'{settings.name}' does not know who may invite it to a run: set 'server_key' to the line that 'fedpu "
            "deploy init' wrote, or insecure = true for a trial."
        )
    else:
        tell(
            f"'{settings.name}' has no 'server_key': it answers any run that it is asked to take part in, and what "
            "it sends can be read and changed on its way. This is for trials with data that are nobody's secret."
        )


def _keys(settings: NodeSettings) -> Keys | None:
    if settings.insecure:
        return None
    key = read_key(settings)
    return key, key.public_key()


def _certificates(settings: NodeSettings) -> bytes | None:
    if settings.root_certificates is None:
        return None
    try:
        return Path(settings.root_certificates).read_bytes()
    except OSError as error:
        raise ConfigError(f"The certificate '{settings.root_certificates}' can't be read: {error.strerror}.") from error
