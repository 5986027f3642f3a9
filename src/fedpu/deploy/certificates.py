"""Keys of nodes. The certificates of the SuperLink are in :mod:`fedpu.flower.tls`."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedpu.flower.tls import write_secret


def write_node_key(path: Path) -> None:
    """Write a node's private key to ``path``, and its public key beside it with ``.pub``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_secret(path, private)
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")
