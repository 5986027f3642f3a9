"""Sums over the clients of a deployment, in the open or as secure sums of which the server learns the sum alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fedpu.deploy.protocol import (
    CLIENT,
    NUMBER,
    SECURE,
    SECURE_JOIN,
    SECURE_OPEN,
    SECURE_SHARE,
    pack_secure,
    unpack_part,
    unpack_secure,
)
from fedpu.engine.flower.exchange import Exchange
from fedpu.privacy.mechanism import Vector
from fedpu.privacy.secagg import MaskedVector, OpenedShares, PublicKeys, Rules, SealedShares, SecureServer

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Answer = TypeVar("Answer")
Check = Callable[[Vector], str | None]
"""says what is wrong with a client's numbers, or nothing"""


class Sum(NamedTuple):
    """Σ_k weight_k, Σ_k weight_k · values_k, and how many clients are in it."""

    weight: int
    values: Vector
    clients: int


def plain_sum(
    exchange: Exchange, kind: str, messages: Mapping[int, RecordDict], length: int, group: str, check: Check
) -> Sum:
    """Ask for everybody's part and add them up."""
    weight, total, came = 0, np.zeros(length), 0
    for client, answer in exchange.ask(kind, _numbered(messages), group):
        try:
            part, values = unpack_part(answer, length)
            wrong = check(values)
        except ValueError as error:
            wrong = str(error)
        if wrong is not None:
            exchange.leave_out(client, wrong)
            continue
        weight, came = weight + part, came + 1
        total += part * values
    return Sum(weight, total, came)


def secure_sum(exchange: Exchange, rules: Rules, kind: str, messages: Mapping[int, RecordDict], group: str) -> Sum:
    """Run the four stages of a secure sum; in the third, ``kind`` asks for the part that is hidden under masks."""
    server = SecureServer(rules, messages)
    keys = _stage(exchange, SECURE_JOIN, server.begin(), PublicKeys, group)
    shares = _stage(exchange, SECURE_SHARE, server.introduce(keys), SealedShares, group)
    masked = _stage(exchange, kind, server.deliver(shares), MaskedVector, group, messages)
    opened = _stage(exchange, SECURE_OPEN, server.collect(masked), OpenedShares, group)
    total = server.finish(opened)
    return Sum(total.weight, total.sums, len(total.clients))


def _stage(
    exchange: Exchange,
    kind: str,
    requests: Mapping[int, DataclassInstance],
    answer: type[Answer],
    group: str,
    messages: Mapping[int, RecordDict] | None = None,
) -> Iterator[tuple[int, Answer]]:
    contents = _numbered({client: messages[client] if messages else RecordDict() for client in requests})
    for client, request in requests.items():
        contents[client][SECURE] = pack_secure(request)
    for client, reply in exchange.ask(kind, contents, group):
        try:
            yield client, unpack_secure(answer, reply[SECURE])
        except (ValueError, KeyError) as error:
            exchange.leave_out(client, f"its answer can't be read ({error})")


def _numbered(messages: Mapping[int, RecordDict]) -> dict[int, RecordDict]:
    """Return messages that also tell each client its number."""
    return {
        client: RecordDict({**content, CLIENT: ConfigRecord({NUMBER: client})}) for client, content in messages.items()
    }
