"""A client's part of a secure sum. What it keeps between the messages stays in its node's state of the run."""

from __future__ import annotations

from typing import Any, TypeVar

from flwr.app import ConfigRecord, Context, RecordDict

from fedpu.deploy.protocol import CLIENT, NUMBER, SECURE, pack_secure
from fedpu.privacy.mechanism import Vector
from fedpu.privacy.secagg import Inbox, Neighbourhood, Rules, SecureAggregationError, SecureClient, Unmask

STATE = "secure"
Kind = TypeVar("Kind")


def join(content: RecordDict, context: Context) -> RecordDict:
    """Stage 0: make new secrets, and tell the public keys."""
    client, keys = SecureClient.join(number_of(content), _asked(Rules, content))
    return _keep(client, context, keys)


def share(content: RecordDict, context: Context) -> RecordDict:
    """Stage 1: hand out shares of the secrets, sealed for each neighbour."""
    client, shares = _kept(context).share(_asked(Neighbourhood, content))
    return _keep(client, context, shares)


def mask(content: RecordDict, context: Context, weight: int, values: Vector) -> RecordDict:
    """Stage 2: send the part, hidden under masks."""
    client, vector = _kept(context).mask(_asked(Inbox, content), weight, values)
    return _keep(client, context, vector)


def open_shares(content: RecordDict, context: Context) -> RecordDict:
    """Stage 3: open what takes the masks off the sum."""
    client, shares = _kept(context).open(_asked(Unmask, content))
    return _keep(client, context, shares)


def number_of(content: RecordDict) -> int:
    """Return the client's number in the run."""
    record: Any = content[CLIENT]
    return int(record[NUMBER])


def _asked(kind: type[Kind], content: RecordDict) -> Kind:
    """Read what the server asks in a stage of a secure sum."""
    record: Any = content[SECURE]
    try:
        return kind(**dict(record))
    except TypeError as error:
        raise SecureAggregationError(f"The server's message can't be read ({error}).") from error


def _kept(context: Context) -> SecureClient:
    if STATE not in context.state:
        raise SecureAggregationError("This client is in no secure sum: it was started again in the middle of one.")
    kept: Any = context.state[STATE]
    return SecureClient.load(kept[STATE])


def _keep(client: SecureClient, context: Context, message: Any) -> RecordDict:
    context.state[STATE] = ConfigRecord({STATE: client.dump()})
    return RecordDict({SECURE: pack_secure(message)})
