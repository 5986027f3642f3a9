"""The server's side of a secure sum: it hands messages on, adds masked vectors up, and takes masks off the sum."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedpu.privacy.secagg import blocks
from fedpu.privacy.secagg.messages import (
    Inbox,
    MaskedVector,
    Neighbourhood,
    OpenedShares,
    PublicKeys,
    SealedShares,
    Unmask,
)
from fedpu.privacy.secagg.rules import Rules, SecureAggregationError, Total, decode

Answer = TypeVar("Answer")


class SecureServer:
    """Runs one secure sum over named clients.

    Each step takes the answers that arrived, as pairs of a client and its answer, and returns the next message for
    each client that is still there; whoever has not answered is left out from then on. In this order: :meth:`begin`,
    :meth:`introduce`, :meth:`deliver`, :meth:`collect`, :meth:`finish`. A step that finds too few clients left raises
    :class:`SecureAggregationError`: the sum of this round can't be had.
    """

    def __init__(self, rules: Rules, clients: Iterable[int], context: bytes = b"") -> None:
        """``context`` is what the clients were told besides, and bind their masks to."""
        self.rules = rules
        self._context = context
        self._asked = list(clients)
        if len(set(self._asked)) != rules.clients:
            raise SecureAggregationError(f"The rules are for {rules.clients} clients; got {len(set(self._asked))}.")
        self._keys: dict[int, PublicKeys] = {}
        self._neighbours: dict[int, list[int]] = {}
        self._commitments: dict[int, bytes] = {}
        self._sum: NDArray[Any] = np.zeros(rules.length + 1, rules.word)
        self._alive: list[int] = []

    def begin(self) -> dict[int, Rules]:
        """Stage 0: send everybody the rules."""
        return dict.fromkeys(self._asked, self.rules)

    def introduce(self, answers: Iterable[tuple[int, PublicKeys]]) -> dict[int, Neighbourhood]:
        """Stage 1: choose neighbours among those that sent their keys, and introduce them to each other."""
        self._keys = self._known(answers, self._asked, "public keys")
        self._neighbours = regular_graph(list(self._keys), self.rules.neighbours)
        return {
            client: Neighbourhood(
                others,
                [self._keys[id].mask_key for id in others],
                [self._keys[id].seal_key for id in others],
                [self._keys[id].proof for id in others],
            )
            for client, others in self._neighbours.items()
        }

    def deliver(self, answers: Iterable[tuple[int, SealedShares]]) -> dict[int, Inbox]:
        """Stage 2: hand sealed shares on; the clients that sent some are the ones whose masks will be in the sum."""
        shares = self._known(answers, self._keys, "shares")
        inboxes: dict[int, Inbox] = {client: Inbox([], []) for client in shares}
        for sender, message in shares.items():
            if message.receivers != self._neighbours[sender] or len(message.sealed) != len(message.receivers):
                raise SecureAggregationError(f"Client {sender} did not send a share to each of its neighbours.")
            self._commitments[sender] = message.commitment
            for receiver, sealed in zip(message.receivers, message.sealed, strict=True):
                if receiver in inboxes:
                    inboxes[receiver].senders.append(sender)
                    inboxes[receiver].sealed.append(sealed)
        return inboxes

    def collect(self, answers: Iterable[tuple[int, MaskedVector]]) -> dict[int, Unmask]:
        """Stage 3: add masked vectors up, one after another, and ask for what takes the masks off their sum."""
        for client, message in answers:
            if client not in self._commitments or client in self._alive:
                raise SecureAggregationError(f"A masked vector came from client {client}, which was not due.")
            if len(message.words) != self._sum.nbytes:
                raise SecureAggregationError(f"The masked vector of client {client} has another length than agreed on.")
            self._sum += np.frombuffer(message.words, self.rules.word)
            self._alive.append(client)
        self._enough(self._alive, "masked vectors")
        alive = set(self._alive)
        requests = {}
        for client in self._alive:
            group = [client, *(id for id in self._neighbours[client] if id in self._commitments)]
            requests[client] = Unmask([id for id in group if id in alive], [id for id in group if id not in alive])
        return requests

    def finish(self, answers: Iterable[tuple[int, OpenedShares]]) -> Total:
        """Take off the own masks of those alive, and the masks that the others had with them; return the sum."""
        opened: dict[int, list[bytes]] = {client: [] for client in self._commitments}
        for holder, message in self._known(answers, self._alive, "opened shares").items():
            if len(message.owners) != len(message.shares) or not set(message.owners) <= opened.keys():
                raise SecureAggregationError(f"Client {holder} opened shares of clients that do not take part.")
            for owner, share in zip(message.owners, message.shares, strict=True):
                opened[owner].append(share)
        alive = set(self._alive)
        length, word = len(self._sum), self.rules.word
        for client in self._commitments:
            neighbours = [id for id in self._neighbours[client] if id in alive]
            if client in alive:
                seed = self._secret(client, opened[client])
                if blocks.commitment(seed) != self._commitments[client]:
                    raise SecureAggregationError(f"A share of client {client}'s seed was changed.")
                self._sum -= blocks.mask(seed, length, word)
            elif neighbours:
                private = self._secret(client, opened[client])
                if blocks.public_key(private) != self._keys[client].mask_key:
                    raise SecureAggregationError(f"A share of client {client}'s mask key was changed.")
                shared = blocks.agree(private, [self._keys[other].mask_key for other in neighbours])
                for other, secret in zip(neighbours, shared, strict=True):
                    common = blocks.mask(secret + self._context, length, word)
                    self._sum += common if other < client else -common
        return decode(self.rules, sorted(alive), self._sum)

    def _secret(self, owner: int, shares: list[bytes]) -> bytes:
        needed = self.rules.quorum(len(self._neighbours[owner]) + 1)
        if len(shares) < needed:
            raise SecureAggregationError(
                f"The secure sum failed: {len(shares)} of the holders of client {owner}'s secret are left, {needed} "
                "are needed to take its masks off."
            )
        return blocks.join(shares[:needed])

    def _known(self, answers: Iterable[tuple[int, Answer]], due: Iterable[int], what: str) -> dict[int, Answer]:
        known = dict(answers)
        strangers = known.keys() - set(due)
        if strangers:
            raise SecureAggregationError(f"{what.capitalize()} came from clients that were not due: {strangers}.")
        self._enough(known, what)
        return known

    def _enough(self, left: Iterable[int], what: str) -> None:
        needed, there = self.rules.quorum(self.rules.clients), len(set(left))
        if there < needed:
            raise SecureAggregationError(
                f"The secure sum failed: {there} of {self.rules.clients} clients sent {what}, {needed} are needed "
                f"(privacy.threshold = {self.rules.threshold})."
            )


def regular_graph(clients: list[int], neighbours: int) -> dict[int, list[int]]:
    """Return everybody's neighbours: all others, or as many of them on a ring in random order (an even number)."""
    count = len(clients)
    if neighbours == 0 or neighbours >= count - 1:
        return {client: [other for other in clients if other != client] for client in clients}
    ring = list(clients)
    secrets.SystemRandom().shuffle(ring)
    reach = (neighbours + 1) // 2
    steps = [step for step in range(-reach, reach + 1) if step]
    return {client: list({ring[(place + step) % count]: None for step in steps}) for place, client in enumerate(ring)}
