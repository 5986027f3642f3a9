"""The client's side of a secure sum."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

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
from fedpu.privacy.secagg.rules import Rules, SecureAggregationError, encode

SEED = 31
"""bytes of the own mask's seed; with Shamir's padding two blocks, where 32 would be three"""


@dataclass(frozen=True, eq=False, repr=False)
class SecureClient:
    """What a client keeps between the messages of one sum; its secrets never leave it in one piece.

    Each step returns what to keep and what to send, and can be taken only once, in this order: :meth:`join`,
    :meth:`share`, :meth:`mask`, :meth:`open`. Between two messages it can be put away with :meth:`dump`.
    """

    id: int
    rules: Rules
    stage: str
    mask_private: bytes
    seal_private: bytes
    seed: bytes
    mask_keys: dict[int, bytes] = field(default_factory=dict)
    seal_secrets: dict[int, bytes] = field(default_factory=dict)
    seed_shares: dict[int, bytes] = field(default_factory=dict)
    key_shares: dict[int, bytes] = field(default_factory=dict)

    @classmethod
    def join(cls, id: int, rules: Rules) -> tuple[SecureClient, PublicKeys]:
        """Stage 0: make new secrets, and tell the public keys."""
        mask_private, mask_public = blocks.new_key_pair()
        seal_private, seal_public = blocks.new_key_pair()
        client = cls(id, rules, "share", mask_private, seal_private, secrets.token_bytes(SEED))
        return client, PublicKeys(mask_public, seal_public)

    def share(self, neighbourhood: Neighbourhood) -> tuple[SecureClient, SealedShares]:
        """Stage 1: split both secrets among the neighbours and oneself, sealed for each of them."""
        self._expect("share")
        ids = neighbourhood.neighbours
        mask_keys = dict(zip(ids, neighbourhood.mask_keys, strict=True))
        every = [*neighbourhood.mask_keys, *neighbourhood.seal_keys]
        if len(mask_keys) < len(ids) or self.id in mask_keys or len(set(every)) < len(every):
            raise SecureAggregationError(f"Client {self.id} was told of neighbours that are not all different.")
        holders = [self.id, *ids]
        threshold = self._quorum(holders)
        seed_shares = dict(zip(holders, blocks.split(self.seed, threshold, len(holders)), strict=True))
        key_shares = dict(zip(holders, blocks.split(self.mask_private, threshold, len(holders)), strict=True))
        seal_secrets = dict(zip(ids, blocks.agree(self.seal_private, neighbourhood.seal_keys), strict=True))
        sealed = [
            blocks.seal(seal_secrets[other], self.id, other, seed_shares[other], key_shares[other]) for other in ids
        ]
        client = replace(
            self,
            stage="mask",
            mask_keys=mask_keys,
            seal_secrets=seal_secrets,
            seed_shares={self.id: seed_shares[self.id]},
            key_shares={self.id: key_shares[self.id]},
        )
        return client, SealedShares(list(ids), sealed, blocks.commitment(self.seed))

    def mask(
        self, inbox: Inbox, weight: int, values: NDArray[np.float64], context: bytes = b""
    ) -> tuple[SecureClient, MaskedVector]:
        """Stage 2: quantise, and hide under the own mask and one with each neighbour that has sent its shares.

        ``context`` is what all clients must have been told alike, such as a hash of the model: masks of clients that
        were told different things do not cancel, and their sum tells nothing.
        """
        self._expect("mask")
        if not set(inbox.senders) <= self.mask_keys.keys() or len(set(inbox.senders)) < len(inbox.senders):
            raise SecureAggregationError(f"Client {self.id} was handed shares of clients that are no neighbours.")
        self._enough([self.id, *inbox.senders])
        seed_shares, key_shares = dict(self.seed_shares), dict(self.key_shares)
        for sender, sealed in zip(inbox.senders, inbox.sealed, strict=True):
            opened = blocks.unseal(self.seal_secrets[sender], sender, self.id, sealed)
            seed_shares[sender], key_shares[sender] = opened
        word, length = self.rules.word, self.rules.length + 1
        hidden = encode(self.rules, weight, values).astype(word) + blocks.mask(self.seed, length, word)
        secrets_in_common = blocks.agree(self.mask_private, [self.mask_keys[other] for other in inbox.senders])
        for other, secret in zip(inbox.senders, secrets_in_common, strict=True):
            common = blocks.mask(secret + context, length, word)
            hidden = hidden + common if self.id > other else hidden - common
        client = replace(self, stage="open", seed_shares=seed_shares, key_shares=key_shares)
        return client, MaskedVector(hidden.tobytes())

    def open(self, request: Unmask) -> tuple[SecureClient, OpenedShares]:
        """Stage 3: give out one share of each member of the group: of its seed or of its mask key, never both."""
        self._expect("open")
        alive, dropped = set(request.alive), set(request.dropped)
        if alive & dropped or self.id not in alive or alive | dropped != self.seed_shares.keys():
            raise SecureAggregationError(
                f"Client {self.id} was asked for shares that would undo somebody's masks; it gives none."
            )
        self._enough(alive)
        shares = [self.seed_shares[id] for id in request.alive] + [self.key_shares[id] for id in request.dropped]
        return replace(self, stage="done"), OpenedShares([*request.alive, *request.dropped], shares)

    def dump(self) -> bytes:
        """Return everything as bytes, secrets included, for a client that does not stay in memory."""
        return json.dumps(asdict(self), default=bytes.hex).encode()

    @classmethod
    def load(cls, dumped: bytes) -> SecureClient:
        """Read what :meth:`dump` has written."""
        values = json.loads(dumped)
        values["rules"] = Rules(**values["rules"])
        for name in ("mask_private", "seal_private", "seed"):
            values[name] = bytes.fromhex(values[name])
        for name in ("mask_keys", "seal_secrets", "seed_shares", "key_shares"):
            values[name] = {int(id): bytes.fromhex(value) for id, value in values[name].items()}
        return cls(**values)

    def _quorum(self, holders: Iterable[int]) -> int:
        return self.rules.quorum(len(set(holders)))

    def _enough(self, left: Iterable[int]) -> None:
        needed, there = self._quorum([self.id, *self.mask_keys]), len(set(left))
        if there < needed:
            raise SecureAggregationError(f"Client {self.id} stops: {there} of its group are left, {needed} are needed.")

    def _expect(self, stage: str) -> None:
        if self.stage != stage:
            raise SecureAggregationError(
                f"Client {self.id} was asked to '{stage}' when '{self.stage}' comes next; no step is taken twice."
            )
