"""The messages of a secure sum, in the order in which they are sent.

Their fields are whole numbers, bytes, and lists of these: ``dataclasses.asdict`` makes of a message what any transport
can carry, and ``Message(**fields)`` makes a message of it again. :class:`~fedpu.privacy.secagg.rules.Rules` come
first.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublicKeys:
    """From a client, as answer to the rules: its two public keys, new for this sum."""

    mask_key: bytes
    seal_key: bytes
    proof: bytes = b""
    """that they are its own, in a form that the transport and the other clients know; the server hands it on"""


@dataclass(frozen=True)
class Neighbourhood:
    """To a client: who its neighbours are, with their public keys."""

    neighbours: list[int]
    mask_keys: list[bytes]
    seal_keys: list[bytes]
    proofs: list[bytes] = field(default_factory=list)


@dataclass(frozen=True)
class SealedShares:
    """From a client: shares of its two secrets for each neighbour, sealed, and a checksum of its own mask's seed."""

    receivers: list[int]
    sealed: list[bytes]
    commitment: bytes


@dataclass(frozen=True)
class Inbox:
    """To a client: the shares that its neighbours sent it. With their senders it exchanges masks."""

    senders: list[int]
    sealed: list[bytes]


@dataclass(frozen=True)
class MaskedVector:
    """From a client: its weight and its weighted, quantised numbers under all of its masks; uniform to anybody."""

    words: bytes


@dataclass(frozen=True)
class Unmask:
    """To a client: which of its group have sent their vector, and which have not. It is a member of its group."""

    alive: list[int]
    dropped: list[int]


@dataclass(frozen=True)
class OpenedShares:
    """From a client: for everybody alive its share of the seed, for everybody dropped its share of the mask key."""

    owners: list[int]
    shares: list[bytes]
