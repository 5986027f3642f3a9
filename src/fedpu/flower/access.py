"""Who may control a SuperLink: one secret in a file of its owner, which Flower's own commands send for them."""

from __future__ import annotations

import base64
import json
import secrets
import stat
from pathlib import Path

from fedpu.errors import ConfigError
from fedpu.flower.processes import write_connection
from fedpu.flower.tls import write_secret

TOKEN_BYTES = 32
CREDENTIALS = "credentials.yaml"


def write_control_secret(path: Path) -> None:
    """Make a secret that whoever controls the SuperLink must know; nodes never get it."""
    private_folder(path.parent)
    write_secret(path, secrets.token_hex(TOKEN_BYTES).encode())


def read_private(path: Path) -> bytes:
    """Read a file that must be its owner's alone."""
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise ConfigError(f"'{path}' can't be read: {error.strerror}. 'fedpu deploy init' writes it.") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"Other users of this machine can open '{path}', which is secret: run 'chmod 600 {path}'.")
    return content


def private_folder(path: Path) -> Path:
    """Make a folder that only its owner can enter."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(stat.S_IRWXU)
    return path


def write_access(home: Path, address: str, root_certificates: Path, secret: bytes) -> None:
    """Tell ``flwr`` where the SuperLink's control is, and the secret, as it keeps the token of an account."""
    private_folder(home)
    # JSON is YAML too. Flower looks for an account's token under the name of its kind of log-in, which is OIDC's; no
    # log-in takes place.
    entries = {"authn-type": b"oidc", "oidc-access-token": secret, "oidc-refresh-token": b"-"}
    stored = {
        f"flower.account-auth.{address}.{name}": base64.b64encode(value).decode() for name, value in entries.items()
    }
    write_secret(home / CREDENTIALS, json.dumps(stored, indent=1).encode())
    write_connection(home, address, root_certificates)
