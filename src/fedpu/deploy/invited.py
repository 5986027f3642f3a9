"""Invitations on the wire: the server signs every request, and a node answers those alone that verify."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedpu.deploy.folder import INVITATIONS
from fedpu.deploy.invitation import (
    CLIENTS,
    Invitation,
    NotInvited,
    Request,
    RunKey,
    config_hash,
    once,
    read_owner_line,
    verify_request,
)
from fedpu.deploy.ledger import Ledger
from fedpu.deploy.protocol import RUN, record_hash
from fedpu.deploy.settings import NodeSettings
from fedpu.errors import TrainingError
from fedpu.flower.access import read_private
from fedpu.flower.wire import Request as Sent
from fedpu.flower.wire import Wire

if TYPE_CHECKING:
    from flwr.serverapp import Grid

INVITATION = "invitation"
PATIENCE = 60.0
"""seconds that the owner's command has to sign the invitation of a run that it has started"""


class SignedWire(Wire):
    """A wire that signs every request with the key of the run."""

    def __init__(self, wire: Wire, run: int, key: RunKey) -> None:
        self._wire = wire
        self._run = run
        self._key = key

    @property
    def clients(self) -> dict[str, str]:
        """The public keys of the clients by name, as the owner vouches for them."""
        return self._key.clients

    @property
    def run(self) -> int:
        """Flower's number of the run."""
        return self._run

    def nodes(self) -> list[int]:
        """Return the nodes that are connected."""
        return self._wire.nodes()

    def names(self) -> dict[int, str]:
        """Return the name of each node; "" where it was registered without one, with which nobody can take part."""
        return dict.fromkeys(self._wire.nodes(), "") | self._wire.names()

    def push(self, requests: Sequence[Sent]) -> list[str | None]:
        """Sign and send."""
        return self._wire.push([replace(one, content=self._signed(one)) for one in requests])

    def pull(self, numbers: Iterable[str]) -> list[Message]:
        """Fetch replies."""
        return self._wire.pull(numbers)

    def _signed(self, sent: Sent) -> RecordDict:
        request = Request(self._run, sent.node, sent.kind, content_hash(sent.content), once())
        about: dict[str, Any] = {
            "statement": self._key.invitation.statement,
            "vouched": self._key.invitation.signature,
            "once": request.once,
            "signature": self._key.sign(request),
        }
        return RecordDict({**sent.content, INVITATION: ConfigRecord(about)})


def server_wire(grid: Grid, context: Context) -> Wire:
    """Return the wire of a ServerApp; it signs if the run configuration says where the keys of runs are."""
    from fedpu.flower.grid import GridWire  # takes a second, and nodes come by here without one

    folder = str(context.run_config.get(INVITATIONS, ""))
    if not folder:
        return GridWire(grid)
    return SignedWire(GridWire(grid), context.run_id, _run_key(Path(folder) / str(context.run_id)))


def _run_key(path: Path) -> RunKey:
    end = time.monotonic() + PATIENCE
    while not path.exists():  # the owner's command knows the number of a run only after it has started
        if time.monotonic() > end:
            raise TrainingError("Nobody has invited the nodes to this run: start it with 'fedpu deploy start'.")
        time.sleep(0.1)
    key = RunKey.load(read_private(path))
    path.unlink()  # from here on it is in the memory of this process alone
    return key


def refuse_uninvited(node: NodeSettings, message: Message, context: Context) -> None:
    """Refuse a message without a valid invitation, before anything is done with what it says."""
    if node.server_key is None:
        if node.insecure:
            return
        raise NotInvited("This node's file has no 'server_key', so that it can't tell who invites it to a run.")
    run, content = message.metadata.run_id, message.content
    if INVITATION not in content:
        raise NotInvited("This node was not invited to this run.")
    about: Any = content[INVITATION]
    try:
        invitation = Invitation(about["statement"], about["vouched"])
        stated = invitation.verified(read_owner_line(node.server_key), run)
        kind = message.metadata.message_type
        request = Request(run, context.node_id, kind, content_hash(content), about["once"])
        verify_request(stated, request, about["signature"])
        _refuse_other_configuration(content, stated["configs"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotInvited(f"The invitation to this run can't be read ({type(error).__name__}).") from error
    # Asked twice, random noise could be averaged away; so the numbers are kept on the disk.
    if not re.fullmatch("[0-9a-f]{32}", request.once) or not Ledger(node.state_folder()).use(run, request.once):
        raise NotInvited("This request was answered already.")


def vouched_clients(content: RecordDict) -> dict[str, str]:
    """Return the clients' public keys by name that the invitation, which was verified before, vouches for."""
    about: Any = content.get(INVITATION)
    if about is None:
        return {}
    return {str(name): str(key) for name, key in json.loads(about["statement"])[CLIENTS].items()}


def content_hash(content: RecordDict) -> str:
    """Return a hash of all records but the invitation."""
    parts = {name: record_hash(record) for name, record in content.items() if name != INVITATION}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _refuse_other_configuration(content: RecordDict, invited: list[str]) -> None:
    run: Any = content.get(RUN)
    if run is not None and config_hash(run["config"]) not in invited:
        raise NotInvited("The configuration is not the one that this node was invited to.")
