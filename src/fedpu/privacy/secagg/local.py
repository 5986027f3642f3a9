"""A secure sum in one process: every client and the server, with all of their messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fedpu.privacy.secagg.client import SecureClient
from fedpu.privacy.secagg.messages import MaskedVector, OpenedShares, PublicKeys, SealedShares
from fedpu.privacy.secagg.rules import Rules, Total
from fedpu.privacy.secagg.server import SecureServer

Contribution = tuple[int, int, NDArray[np.float64]]
"""a client, its weight, and its numbers"""


def secure_sum(rules: Rules, clients: Iterable[int], contributions: Iterable[Contribution]) -> Total:
    """Return Σ_k weight_k and Σ_k weight_k · values_k; contributions may come in any order, one at a time."""
    server = SecureServer(rules, clients)
    there: dict[int, SecureClient] = {}
    keys: dict[int, PublicKeys] = {}
    for client, agreed in server.begin().items():
        there[client], keys[client] = SecureClient.join(client, agreed)
    shares: dict[int, SealedShares] = {}
    for client, neighbourhood in server.introduce(keys.items()).items():
        there[client], shares[client] = there[client].share(neighbourhood)
    inboxes = server.deliver(shares.items())

    def masked() -> Iterator[tuple[int, MaskedVector]]:
        for client, weight, values in contributions:
            there[client], vector = there[client].mask(inboxes[client], weight, values)
            yield client, vector

    opened: dict[int, OpenedShares] = {}
    for client, request in server.collect(masked()).items():
        there[client], opened[client] = there[client].open(request)
    return server.finish(opened.items())
