"""Invitations: what a node must see, signed by the server's owner, before it answers a request.

Two signatures (Ed25519), so that the owner's key is not needed where the rounds run:

1. The owner signs, when a run is started, the run's number, the hashes of its configurations, a date on which the
   invitation ends, a public key made for this run, and, for secure sums, which client has which public key.
2. The key of the run signs every request: run, receiver, kind of message, its content, and a number used once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedpu.errors import ConfigError

INVITES, ASKS = b"fedpu: the owner invites\n", b"fedpu: the run asks\n"
"""what a signature is about, so that none can stand for another"""
DAY = 86400.0
CLIENTS = "clients"
"""in the statement: the public keys that the owner vouches for, by name"""


class NotInvited(ConfigError):
    """A request that a node does not answer."""


@dataclass(frozen=True)
class Request:
    """What a signature of a run's key covers."""

    run: int
    receiver: int
    """number of the node"""
    kind: str
    content: str
    """hash of all records"""
    once: str

    def to_bytes(self) -> bytes:
        """Return what is signed."""
        return ASKS + json.dumps([self.run, self.receiver, self.kind, self.content, self.once]).encode()


@dataclass(frozen=True)
class Invitation:
    """The owner's statement about a run, and the signature under it."""

    statement: bytes
    signature: bytes

    def verified(self, owner: Ed25519PublicKey, run: int) -> Mapping[str, Any]:
        """Return what the owner states of this run, or say why it counts for nothing."""
        try:
            owner.verify(self.signature, INVITES + self.statement)
        except InvalidSignature as error:
            raise NotInvited("The invitation to this run is not signed by the owner of the server.") from error
        stated: dict[str, Any] = json.loads(self.statement)
        if stated["run"] != run:
            raise NotInvited(f"The invitation is to run {stated['run']}, and this is run {run}.")
        if time.time() > stated["ends"]:
            raise NotInvited("The invitation to this run has ended: start it again, with resume.")
        return stated


@dataclass(frozen=True)
class RunKey:
    """What a ServerApp signs its requests with, and the invitation that vouches for it."""

    private: bytes
    invitation: Invitation

    @classmethod
    def create(
        cls,
        owner: Ed25519PrivateKey,
        run: int,
        configs: Sequence[str],
        days: float,
        clients: Mapping[str, str] | None = None,
    ) -> RunKey:
        """Make a key for a run of those configurations, as their files are written, and have the owner sign it.

        ``clients`` are the public keys of the nodes by name, where they must know each other's.
        """
        key = Ed25519PrivateKey.generate()
        stated = {
            "run": run,
            "configs": [config_hash(config) for config in configs],
            "ends": time.time() + days * DAY,
            "key": key.public_key().public_bytes_raw().hex(),
            CLIENTS: dict(clients or {}),
        }
        statement = json.dumps(stated).encode()
        return cls(key.private_bytes_raw(), Invitation(statement, owner.sign(INVITES + statement)))

    def sign(self, request: Request) -> bytes:
        """Sign a request."""
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(request.to_bytes())

    @property
    def clients(self) -> dict[str, str]:
        """The public keys of the clients by name, as the owner vouches for them."""
        return dict(json.loads(self.invitation.statement)[CLIENTS])

    def dump(self) -> bytes:
        """Return what goes into a file."""
        parts = (self.private, self.invitation.statement, self.invitation.signature)
        return json.dumps([part.hex() for part in parts]).encode()

    @classmethod
    def load(cls, stored: bytes) -> RunKey:
        """Read a file."""
        private, statement, signature = (bytes.fromhex(part) for part in json.loads(stored))
        return cls(private, Invitation(statement, signature))


def verify_request(stated: Mapping[str, Any], request: Request, signature: bytes) -> None:
    """Refuse a request that the run's key, which the owner vouches for, has not signed."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(stated["key"])).verify(signature, request.to_bytes())
    except InvalidSignature as error:
        raise NotInvited("The request was not signed for this node and run, or was changed on its way.") from error


def config_hash(config: str) -> str:
    """Return the hash of a configuration file."""
    return hashlib.sha256(config.encode()).hexdigest()


def once() -> str:
    """Return something that nobody has used before."""
    return secrets.token_hex(16)


def new_owner_key() -> tuple[bytes, str]:
    """Make an owner's key; return the file of the private part, and the line that nodes have in their files."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private, public.decode()


def read_owner_key(content: bytes) -> Ed25519PrivateKey:
    """Read the private part."""
    try:
        key = serialization.load_ssh_private_key(content, None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"The owner's key can't be read: {error}.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError("The owner's key is no Ed25519 key: 'fedpu deploy init' makes one.")
    return key


def read_owner_line(line: str) -> Ed25519PublicKey:
    """Read the public part, as nodes have it."""
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"server_key = '{line}' can't be read: {error}.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError("server_key is no Ed25519 key: take the line that 'fedpu deploy init' wrote.")
    return key
