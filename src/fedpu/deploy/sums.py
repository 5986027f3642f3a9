"""Sums over the clients of a deployment, in the open or as secure sums of which the server learns the sum alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from fedpu.deploy.protocol import (
    CLIENT,
    LABEL,
    NUMBER,
    SECURE,
    SECURE_JOIN,
    SECURE_OPEN,
    SECURE_SHARE,
    pack_secure,
    sum_context,
    unpack_part,
)
from fedpu.flower.exchange import Exchange
from fedpu.flower.replies import BadReply, message_of, only
from fedpu.privacy.mechanism import Vector
from fedpu.privacy.secagg import (
    MaskedVector,
    OpenedShares,
    PublicKeys,
    Rules,
    SealedShares,
    SecureAggregationError,
    SecureServer,
)
from fedpu.privacy.secagg.blocks import refuse_unusable_key

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Answer = TypeVar("Answer")
Check = Callable[[int, int, Vector], str | None]
"""says what is wrong with a client's weight and numbers, or nothing"""
Vouch = Callable[[int, str, PublicKeys], str | None]
"""says what is wrong with a client's keys for a sum of that label, or nothing: its neighbours would refuse them"""
ROUNDING = 1e-9
COMMITMENT = 32
"""bytes of a checksum of a mask's seed"""


def anybody(client: int, label: str, keys: PublicKeys) -> str | None:
    """Find nothing wrong with anybody's keys, where nobody has registered any."""
    return None


class Sum(NamedTuple):
    """Σ_k weight_k, Σ_k weight_k · values_k, and who is in it."""

    weight: int
    values: Vector
    who: list[int]

    @property
    def clients(self) -> int:
        """How many clients are in it."""
        return len(self.who)


def plain_sum(
    exchange: Exchange, kind: str, messages: Mapping[int, RecordDict], length: int, group: str, check: Check
) -> Sum:
    """Ask for everybody's part and add them up."""

    def read(client: int, content: RecordDict) -> tuple[int, Vector]:
        weight, values = unpack_part(content, length)
        wrong = check(client, weight, values)
        if wrong is not None:
            raise BadReply(wrong)
        return weight, values

    weight, total, came = 0, np.zeros(length), list[int]()
    for client, (part, values) in exchange.answers(kind, _numbered(messages, group), group, read):
        weight += part
        came.append(client)
        total += part * values
    return Sum(weight, total, came)


def secure_sum(
    exchange: Exchange,
    rules: Rules,
    kind: str,
    messages: Mapping[int, RecordDict],
    group: str,
    vouch: Vouch = anybody,
) -> Sum:
    """Run the four stages of a secure sum; in the third, ``kind`` asks for the part that is hidden under masks.

    A client whose message can't be used is left out from there on. What is hidden under masks, nobody can check but in
    the sum: there all clients together must count as much as so many clients can.
    """
    server, known = SecureServer(rules, messages, sum_context(next(iter(messages.values())))), set[bytes]()

    def keys_fault(client: int, keys: PublicKeys) -> str | None:
        own = {keys.mask_key, keys.seal_key}
        if len(own) < 2 or own & known:
            return "it sent a public key that is in use already"
        try:
            for key in own:
                refuse_unusable_key(key)
        except SecureAggregationError as error:
            return str(error)
        known.update(own)
        return vouch(client, group, keys)

    keys = _stage(exchange, SECURE_JOIN, server.begin(), PublicKeys, group, keys_fault)
    introduced = server.introduce(keys)

    def shares_fault(client: int, shares: SealedShares) -> str | None:
        to_all = shares.receivers == introduced[client].neighbours and len(shares.sealed) == len(shares.receivers)
        return None if to_all and len(shares.commitment) == COMMITMENT else "it did not send a share to each neighbour"

    shares = _stage(exchange, SECURE_SHARE, introduced, SealedShares, group, shares_fault)
    size = (rules.length + 1) * rules.word.itemsize

    def vector_fault(_: int, vector: MaskedVector) -> str | None:
        return None if len(vector.words) == size else "its masked vector has another length than agreed on"

    masked = _stage(exchange, kind, server.deliver(shares), MaskedVector, group, vector_fault, messages)
    asked = server.collect(masked)

    def opened_fault(client: int, opened: OpenedShares) -> str | None:
        group = [*asked[client].alive, *asked[client].dropped]
        fine = opened.owners == group and len(opened.shares) == len(group)
        return None if fine else "it opened other shares than it was asked for"

    opened = _stage(exchange, SECURE_OPEN, asked, OpenedShares, group, opened_fault)
    total = server.finish(opened)
    count = len(total.clients)
    reach = total.weight * rules.range * (1 + ROUNDING)
    if not count <= total.weight <= count * rules.max_weight or float(np.abs(total.sums).max(initial=0.0)) > reach:
        raise SecureAggregationError(
            f"The secure sum can't be used: {count} clients, of which each counts from 1 to {rules.max_weight} and "
            f"sends numbers up to {rules.range:g}, count {total.weight} together and come to "
            f"{float(np.abs(total.sums).max(initial=0.0)):.3g}. One of them has sent something else, and masks hide "
            "which."
        )
    return Sum(total.weight, total.sums, total.clients)


def _stage(
    exchange: Exchange,
    kind: str,
    requests: Mapping[int, DataclassInstance],
    answer: type[Answer],
    group: str,
    fault: Callable[[int, Answer], str | None],
    messages: Mapping[int, RecordDict] | None = None,
) -> Iterator[tuple[int, Answer]]:
    contents = _numbered({client: messages[client] if messages else RecordDict() for client in requests}, group)
    for client, request in requests.items():
        contents[client][SECURE] = pack_secure(request)

    def read(client: int, content: RecordDict) -> Answer:
        only(content, {SECURE})
        message = message_of(answer, content[SECURE])
        wrong = fault(client, message)
        if wrong is not None:
            raise BadReply(wrong)
        return message

    return exchange.answers(kind, contents, group, read)


def _numbered(messages: Mapping[int, RecordDict], label: str) -> dict[int, RecordDict]:
    """Return messages that also tell each client its number, and which sum of the run it is."""
    return {
        client: RecordDict({**content, CLIENT: ConfigRecord({NUMBER: client, LABEL: label})})
        for client, content in messages.items()
    }
