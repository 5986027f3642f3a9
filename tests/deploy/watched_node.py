"""A node, with everything that it sends written down before TLS hides it, and every address that it connects to.

Usage: python watched_node.py NODE.toml CAPTURE
"""

from __future__ import annotations

import pickle
import socket
import sys
from pathlib import Path
from typing import Any

import httpx

from fedpu.deploy import node


def watch(capture: Path) -> None:
    send, connect = httpx.Client.send, socket.socket.connect

    def note(what: str, content: Any) -> None:
        with capture.open("ab") as file:
            pickle.dump((what, content), file)

    def watched_send(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        note(request.url.path, request.content)
        note("headers", dict(request.headers))
        return send(self, request, **options)

    def watched_connect(self: socket.socket, address: Any) -> None:
        note("connect", address)
        connect(self, address)

    changed: Any = httpx.Client
    changed.send = watched_send
    changed = socket.socket
    changed.connect = watched_connect


if __name__ == "__main__":
    watch(Path(sys.argv[2]))
    node.run_node(Path(sys.argv[1]), print)
