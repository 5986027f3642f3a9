"""Keys of a secure sum, signed: a server that hands on keys of its own in place of a client's is found out.

A client makes two new keys for every sum. It signs them with the key that it was registered with, and its neighbours
check that. Whose key is whose they learn from the invitation, in which the owner of the server vouches for it, or from
their own files (``[peers]``), if they do not want to rely on the owner either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedpu.errors import ConfigError
from fedpu.privacy.secagg import Neighbourhood, PublicKeys, SecureAggregationError

SIGNS = b"fedpu: keys of a secure sum\n"
"""what the signature is about, so that none of Flower's can stand for it"""
ALGORITHM = ec.ECDSA(hashes.SHA384())


@dataclass(frozen=True)
class SumName:
    """Which sum keys are for: of a run of Flower's, a round's or that of negative classes."""

    run: int
    label: str

    def statement(self, client: int, name: str, keys: PublicKeys) -> bytes:
        """Return what a client signs."""
        parts = [self.run, self.label, client, name, keys.mask_key.hex(), keys.seal_key.hex()]
        return SIGNS + json.dumps(parts).encode()


def signed(keys: PublicKeys, which: SumName, client: int, name: str, private: ec.EllipticCurvePrivateKey) -> PublicKeys:
    """Return a client's keys with its proof that they are its own."""
    signature = private.sign(which.statement(client, name, keys), ALGORITHM)
    return replace(keys, proof=json.dumps([name, signature.hex()]).encode())


def signer(keys: PublicKeys, which: SumName, client: int, known: Mapping[str, str]) -> str:
    """Return the name of whoever has signed the keys of a client, by the public keys that are known."""
    try:
        name, signature = json.loads(keys.proof)
        line = known[name]
        public_key(line).verify(bytes.fromhex(signature), which.statement(client, name, keys), ALGORITHM)
    except (KeyError, ValueError, TypeError, InvalidSignature, ConfigError) as error:
        raise SecureAggregationError(
            f"The keys of client {client} are not signed by a client that is known here: somebody else may have made "
            f"them ({type(error).__name__})."
        ) from error
    return str(name)


def refuse_unsigned(hood: Neighbourhood, which: SumName, own: str, known: Mapping[str, str]) -> None:
    """Refuse neighbours that are not as many different clients, each with keys of its own."""
    if not len(hood.proofs) == len(hood.neighbours) == len(hood.mask_keys) == len(hood.seal_keys):
        raise SecureAggregationError("The keys of the neighbours are not signed.")
    each: Any = zip(hood.neighbours, hood.mask_keys, hood.seal_keys, hood.proofs, strict=True)
    names = [signer(PublicKeys(mask, seal, proof), which, client, known) for client, mask, seal, proof in each]
    keys = {known[name] for name in names}
    if own in names or len(set(names)) < len(names) or len(keys) < len(names):
        raise SecureAggregationError("One client stands for several among the neighbours.")


def public_key(line: str) -> ec.EllipticCurvePublicKey:
    """Read a node's public key, as its file has it."""
    try:
        key = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"'{line[:60]}' is no public key ({error}).") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ConfigError(f"'{line[:60]}' is no public key of a node: 'fedpu deploy key' makes one.")
    return key
