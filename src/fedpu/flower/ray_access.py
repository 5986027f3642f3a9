"""Ray for its owner alone: as it comes, it listens on every network of the machine and runs whatever it is sent."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from fedpu.flower.tls import write_secret

NICENESS = "RAY_worker_niceness"
LONGEST_FOLDER = 40
"""Ray adds some 65 characters to the name of a socket, which can have 107"""


def ray_environment(folder: Path) -> dict[str, str]:
    """Return variables with which Ray listens on the loopback, asks for a token, and keeps its files in ``folder``."""
    token = folder / "ray.token"
    write_secret(token, secrets.token_hex(32).encode())
    found = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's name for "stay on the loopback", whatever the system
        # The run waits for Ray's workers; as it comes, it lets everything else on the machine go before them.
        NICENESS: os.environ.get(NICENESS, "0"),
    }
    if len(str(folder)) <= LONGEST_FOLDER:
        found["RAY_TMPDIR"] = str(folder)
    return found
