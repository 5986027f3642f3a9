"""Which requests pass a door, over all routes of Flower's own application and the tricks of paths."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from fedpu.errors import ConfigError
from fedpu.flower.access import read_private, write_control_secret
from fedpu.flower.door import FLEET_ROUTES, RUNTIME_ROUTES, Door, NodesDoor, OwnersDoor

SECRET = b"a secret"
BEARER = (b"authorization", b"Bearer " + SECRET)
A_ROUTE = "/v1/fleet/pull-messages"


async def behind(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "passed"})


def scope(path: str, **changes: Any) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [],
    } | changes


def answer(door: Door, request: dict[str, Any]) -> Any:
    """Return "passed", or the status of a refusal."""
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("a door must not read what it refuses")

    asyncio.run(door(request, receive, send))
    return sent[0].get("status", sent[0]["type"])


NODES, OWNERS = NodesDoor(behind), OwnersDoor(behind, SECRET)


def test_nodes_pass_with_what_they_need_and_nobody_with_anything_else() -> None:
    assert answer(NODES, scope(A_ROUTE)) == "passed"
    for path in ("/v1/control/start-run", "/v1/fleet/register-node", "/v1/runtime/acquire-task", "/health", "/"):
        assert answer(NODES, scope(path)) == 404
        assert answer(NODES, scope(path, headers=[BEARER])) == 404, "not even with the secret"


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "GET"},
        {"method": "post"},
        {"path": "/v1/fleet/Pull-Messages"},
        {"path": A_ROUTE + "/"},
        {"path": "/" + A_ROUTE},
        {"path": "/v1/fleet//pull-messages"},
        {"path": "/v1/fleet/../control/list-runs"},
        {"path": "https://server/v1/fleet/pull-messages"},
        {"raw_path": b"/v1/fleet/pull%2Dmessages"},
        {"raw_path": b"/v1%2Ffleet/pull-messages"},
        {"raw_path": None},
        {"query_string": b"a=1"},
        {"root_path": "/v1"},
        {"type": "websocket"},
        {"type": "something new"},
    ],
    ids=str,
)
def test_a_path_must_be_written_as_it_is_meant(changes: dict[str, Any]) -> None:
    request = scope(changes.get("path", A_ROUTE)) | changes
    assert answer(NODES, request) in (404, "websocket.close")
    control = {key: value for key, value in changes.items() if key not in ("path", "raw_path")}
    if control:
        assert answer(OWNERS, scope("/v1/control/list-runs", headers=[BEARER]) | control) in (403, "websocket.close")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"Bearer another")],
        [(b"authorization", SECRET)],
        [(b"authorization", b"Bearer " + SECRET + b" ")],
        [BEARER, BEARER],
        [(b"x-authorization", b"Bearer " + SECRET)],
    ],
    ids=str,
)
def test_control_needs_the_secret(headers: list[tuple[bytes, bytes]]) -> None:
    assert answer(OWNERS, scope("/v1/control/list-runs", headers=headers)) == 403


def test_the_owner_has_control_and_nothing_that_is_for_others() -> None:
    assert answer(OWNERS, scope("/v1/control/list-runs", headers=[BEARER])) == "passed"
    for path in (A_ROUTE, "/health", "/docs", "/openapi.json", "/v1/runtime/create-task", "/v1/runtime/responses"):
        assert answer(OWNERS, scope(path, headers=[BEARER])) == 403


def test_every_route_on_the_lists_is_one_of_flowers(routes: dict[str, set[str]]) -> None:
    assert routes.keys() >= FLEET_ROUTES | RUNTIME_ROUTES
    assert all(routes[path] == {"POST"} for path in FLEET_ROUTES | RUNTIME_ROUTES)


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server" / "control.secret"
    write_control_secret(path)
    assert len(bytes.fromhex(read_private(path).decode())) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="Other users of this machine"):
        read_private(path)
    with pytest.raises(ConfigError, match="can't be read"):
        read_private(tmp_path / "absent")
