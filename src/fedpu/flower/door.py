"""The doors of a SuperLink: which requests reach Flower's application, at the nodes' port and at the owner's.

Flower 1.41 serves everything on one port, and its Control API asks nobody who they are. Here its application is
behind a guard in the same process, so that no second HTTP parser can read a request otherwise than the guard did.
"""

from __future__ import annotations

import hmac
import json
from abc import ABC, abstractmethod

from starlette.types import ASGIApp, Receive, Scope, Send

FLEET_ROUTES = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        *("activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "push-messages"),
        *("pull-object", "push-object", "confirm-message-received", "get-run", "get-fab"),
    )
)
"""what a node with a registered key needs; Flower checks its signature. Keys are registered by the owner alone"""
RUNTIME_ROUTES = frozenset(
    f"/v1/runtime/{name}"
    for name in (
        *("acquire-task", "send-task-heartbeat", "pull-task-input", "push-task-output", "push-logs", "get-nodes"),
        *("push-messages", "pull-messages", "push-object", "pull-object", "confirm-message-received"),
    )
)
"""what a ServerApp or a simulation needs; Flower asks for the executor's signature or for the task's token"""
CONTROL = "/v1/control/"


class Door(ABC):
    """Passes the requests that it admits on to an application, and refuses everything else."""

    status: int
    refusal: str

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    @abstractmethod
    def admits(self, path: str, scope: Scope) -> bool:
        """May a request for exactly this path pass?"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "lifespan" or (_is_plain(scope) and self.admits(scope["path"], scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _refuse(send, self.status, self.refusal)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": ""})


class NodesDoor(Door):
    """For anybody who can reach the machine: the routes of nodes, and no other."""

    status = 404  # to Flower's nodes, 403 means that a run has ended
    refusal = "This port is for nodes alone: only the owner of the server can do that, on the server."

    def admits(self, path: str, scope: Scope) -> bool:
        """Admit what is on the list, letter by letter."""
        return path in FLEET_ROUTES


class OwnersDoor(Door):
    """For the loopback, which every user of the machine can reach: control only with the owner's secret."""

    status = 403
    refusal = "This needs the secret of the deployment's owner: use 'fedpu deploy', or set FLWR_HOME to its folder."

    def __init__(self, app: ASGIApp, secret: bytes) -> None:
        super().__init__(app)
        self._expected = b"Bearer " + secret

    def admits(self, path: str, scope: Scope) -> bool:
        """Admit the owner, and processes that Flower itself asks for their signature or token."""
        if path in RUNTIME_ROUTES:
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return path.startswith(CONTROL) and len(given) == 1 and hmac.compare_digest(given[0], self._expected)


def _is_plain(scope: Scope) -> bool:
    """Is it a POST for a path that is written as it is meant, without escapes, query or prefix?"""
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and scope.get("raw_path") == scope["path"].encode()
        and not scope["query_string"]
        and not scope.get("root_path")
    )


async def _refuse(send: Send, status: int, reason: str) -> None:
    body = json.dumps({"detail": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
