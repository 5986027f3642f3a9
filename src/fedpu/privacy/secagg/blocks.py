"""The building blocks of secure aggregation: Flower's, with a cipher of our own choice for masks.

Key agreement (ECDH on P-384 with HKDF), authenticated encryption (Fernet), Shamir's shares and the form of a share's
plaintext are Flower's. Its generator of masks is not used: ``pseudo_rand_gen`` folds the secret to 32 bits and seeds a
Mersenne Twister with it, so that four thousand million trials undo any mask. Masks here are a key stream of AES-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpu.errors import ConfigError
from fedpu.privacy.secagg.rules import SecureAggregationError

SCALAR = 48
"""bytes of a private key on P-384"""


def need_flower() -> None:
    """Say what to install where the blocks are missing."""
    _flower("common.secure_aggregation.crypto.shamir")


def new_key_pair() -> tuple[bytes, bytes]:
    """Return a new private key, as its number in 48 bytes, and its public key."""
    keys = _flower("supercore.primitives.asymmetric")
    private, public = keys.generate_key_pairs()
    return private.private_numbers().private_value.to_bytes(SCALAR, "big"), keys.public_key_to_bytes(public)


def public_key(private: bytes) -> bytes:
    """Return the public key of a private one."""
    public: bytes = _flower("supercore.primitives.asymmetric").public_key_to_bytes(_private(private).public_key())
    return public


def agree(private: bytes, publics: Iterable[bytes]) -> list[bytes]:
    """Return the secret that the owner of a private key has in common with each owner of a public one."""
    cipher = _flower("common.secure_aggregation.crypto.symmetric_encryption")
    keys = _flower("supercore.primitives.asymmetric")
    mine = _private(private)
    try:
        return [cipher.generate_shared_key(mine, keys.bytes_to_public_key(public)) for public in publics]
    except (ValueError, TypeError, AttributeError) as error:
        raise SecureAggregationError(f"A public key can't be used: {error}.") from error


def refuse_unusable_key(public: bytes) -> None:
    """Refuse what is no public key, or is one of another curve: nobody could agree on a secret with its owner."""
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = _flower("supercore.primitives.asymmetric").bytes_to_public_key(public)
    except (ValueError, TypeError, AttributeError) as error:
        raise SecureAggregationError(f"A public key can't be used: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise SecureAggregationError("A public key can't be used: it is none of P-384.")


def seal(secret: bytes, sender: int, receiver: int, seed_share: bytes, key_share: bytes) -> bytes:
    """Encrypt the two shares that a client sends a neighbour."""
    cipher = _flower("common.secure_aggregation.crypto.symmetric_encryption")
    form = _flower("common.secure_aggregation.secaggplus_utils")
    sealed: bytes = cipher.encrypt(secret, form.share_keys_plaintext_concat(sender, receiver, seed_share, key_share))
    return sealed


def unseal(secret: bytes, sender: int, receiver: int, sealed: bytes) -> tuple[bytes, bytes]:
    """Decrypt two shares; refuse what was changed on the way, or was sent by or to somebody else."""
    from cryptography.fernet import InvalidToken

    cipher = _flower("common.secure_aggregation.crypto.symmetric_encryption")
    form = _flower("common.secure_aggregation.secaggplus_utils")
    try:
        source, target, seed_share, key_share = form.share_keys_plaintext_separate(cipher.decrypt(secret, sealed))
    except InvalidToken as error:
        raise SecureAggregationError(f"The shares from {sender} to {receiver} were changed on the way.") from error
    if (source, target) != (sender, receiver):
        raise SecureAggregationError(
            f"Shares from {source} to {target} were handed over as shares from {sender} to {receiver}."
        )
    return seed_share, key_share


def split(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """Return a share for each holder; any ``threshold`` of them give the secret, and fewer tell nothing."""
    shares: list[bytes] = _flower("common.secure_aggregation.crypto.shamir").create_shares(secret, threshold, holders)
    return shares


def join(shares: list[bytes]) -> bytes:
    """Return the secret of at least ``threshold`` shares."""
    try:
        secret: bytes = _flower("common.secure_aggregation.crypto.shamir").combine_shares(shares)
    except (ValueError, IndexError) as error:
        raise SecureAggregationError("Shares do not fit together: one of them was changed.") from error
    return secret


def mask(secret: bytes, length: int, word: np.dtype[Any]) -> NDArray[Any]:
    """Return ``length`` uniform words from a secret that is used for nothing else: a key stream of AES-256."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = hashlib.sha256(b"fedpu mask" + secret).digest()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(length * word.itemsize)), dtype=word)


def commitment(secret: bytes) -> bytes:
    """Return a checksum by which a secret is known again."""
    return hashlib.sha256(b"fedpu commitment" + secret).digest()


def _private(scalar: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.derive_private_key(int.from_bytes(scalar, "big"), ec.SECP384R1())


def _flower(module: str) -> Any:
    try:
        return import_module(f"flwr.{module}")
    except ImportError as error:
        raise ConfigError(
            "Secure aggregation is built from Flower's blocks, which are not installed: pip install 'fedpu[flower]'."
        ) from error
