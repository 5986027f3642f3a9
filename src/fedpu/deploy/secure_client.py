"""A client's part of a secure sum. What it keeps between the messages stays in its node's state of the run.

The server is not trusted with it: the neighbours' keys must be signed by the neighbours, there must be enough of them,
and what is agreed on must follow from the run's configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Context, RecordDict

from fedpu.deploy.protocol import CLIENT, LABEL, NUMBER, SECURE, pack_secure, sum_context
from fedpu.deploy.round_keys import SumName, refuse_unsigned, signed
from fedpu.deploy.settings import NodeSettings
from fedpu.errors import ConfigError
from fedpu.privacy.mechanism import Vector
from fedpu.privacy.secagg import Inbox, Neighbourhood, Rules, SecureAggregationError, SecureClient, Unmask
from fedpu.privacy.secagg.rules import FEWEST

STATE = "secure"
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Identity:
    """Who a client is to the others of a secure sum, and whom it knows."""

    name: str
    private: ec.EllipticCurvePrivateKey | None
    """its own key; None: in a trial without keys"""
    known: Mapping[str, str] | None
    """public keys by name; None: in a trial without keys it takes anybody's"""
    least: int = FEWEST
    """clients among which it hides, itself counted"""

    @classmethod
    def of(cls, node: NodeSettings, vouched: Mapping[str, str] | None) -> Identity:
        """Return who a node is; ``vouched`` are the keys that the owner of the server vouches for."""
        accepted = node.accepted
        least = FEWEST if accepted is None else accepted.group
        if node.insecure and node.server_key is None and node.peers is None:
            return cls(node.name, None, None, least)
        return cls(node.name, read_key(node), node.peers or vouched or {}, least)


def read_key(node: NodeSettings) -> ec.EllipticCurvePrivateKey:
    """Read a node's own key."""
    if node.key is None:
        raise ConfigError(f"'{node.name}' has no key: set 'key' to the file of its private key, or insecure = true.")
    try:
        key = load_ssh_private_key(Path(node.key).read_bytes(), None)
    except OSError as error:
        raise ConfigError(f"The key '{node.key}' can't be read: {error.strerror}.") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"'{node.key}' is not a private key without a password: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"'{node.key}' is no key of a NIST curve: make one with 'fedpu deploy key'.")
    return key


def join(content: RecordDict, context: Context, own: Identity) -> RecordDict:
    """Stage 0: make new secrets, and tell the public keys, signed."""
    number = number_of(content)
    client, keys = SecureClient.join(number, _asked(Rules, content))
    if own.private is not None:
        keys = signed(keys, _sum_name(content, context), number, own.name, own.private)
    return _keep(client, context, keys, label_of(content))


def share(content: RecordDict, context: Context, own: Identity) -> RecordDict:
    """Stage 1: hand out shares of the secrets, sealed for each neighbour, if the neighbours are who they should be."""
    client, label = _kept(context)
    hood = _asked(Neighbourhood, content)
    if own.known is not None:
        refuse_unsigned(hood, SumName(context.run_id, label), own.name, own.known)
    _enough(own, len(hood.neighbours) + 1)
    client, shares = client.share(hood)
    return _keep(client, context, shares, label)


def mask(
    content: RecordDict,
    context: Context,
    own: Identity,
    label: str,
    due: Callable[[int], Rules],
    part: Callable[[], tuple[int, Vector]],
) -> RecordDict:
    """Stage 2: send the part, hidden under masks.

    ``due`` gives the rules that follow from the configuration for so many clients, ``label`` is the sum that it is for.
    """
    client, joined = _kept(context)
    if joined != label:
        raise SecureAggregationError(f"The keys of this client are for the sum '{joined}', and not for '{label}'.")
    if client.rules != due(client.rules.clients):
        raise SecureAggregationError("The rules of this secure sum do not follow from the run's configuration.")
    inbox = _asked(Inbox, content)
    _enough(own, len(set(inbox.senders)) + 1)
    client, vector = client.mask(inbox, *part(), sum_context(content))
    return _keep(client, context, vector, label)


def open_shares(content: RecordDict, context: Context, own: Identity) -> RecordDict:
    """Stage 3: open what takes the masks off the sum."""
    client, label = _kept(context)
    request = _asked(Unmask, content)
    _enough(own, len(set(request.alive)))
    client, shares = client.open(request)
    return _keep(client, context, shares, label)


def number_of(content: RecordDict) -> int:
    """Return the client's number in the run."""
    record: Any = content[CLIENT]
    return int(record[NUMBER])


def label_of(content: RecordDict) -> str:
    """Return which sum of the run it is."""
    record: Any = content[CLIENT]
    return str(record[LABEL])


def _sum_name(content: RecordDict, context: Context) -> SumName:
    return SumName(context.run_id, label_of(content))


def _enough(own: Identity, clients: int) -> None:
    if clients < own.least:
        raise SecureAggregationError(
            f"'{own.name}' would be hidden among {clients} clients; its owner accepts {own.least} or more (group in "
            "[accepts])."
        )


def _asked(kind: type[Kind], content: RecordDict) -> Kind:
    """Read what the server asks in a stage of a secure sum."""
    record: Any = content[SECURE]
    try:
        return kind(**dict(record))
    except TypeError as error:
        raise SecureAggregationError(f"The server's message can't be read ({error}).") from error


def _kept(context: Context) -> tuple[SecureClient, str]:
    if STATE not in context.state:
        raise SecureAggregationError("This client is in no secure sum: it was started again in the middle of one.")
    kept: Any = context.state[STATE]
    return SecureClient.load(kept[STATE]), str(kept[LABEL])


def _keep(client: SecureClient, context: Context, message: Any, label: str) -> RecordDict:
    context.state[STATE] = ConfigRecord({STATE: client.dump(), LABEL: label})
    return RecordDict({SECURE: pack_secure(message)})
