"""What the owner of a SuperLink asks it, where Flower's own command does not tell: the names of the nodes."""

from __future__ import annotations

import tomllib
from typing import Any

import httpx

from fedpu.errors import FedpuError
from fedpu.flower.access import read_private
from fedpu.flower.link_folder import LinkFolder
from fedpu.flower.private import ControlHttpClient, ListNodesRequest, RuntimeVersionHttpInterceptor
from fedpu.flower.processes import CONFIG, CONNECTION


class _Owner:
    """Shows the owner's secret with every request."""

    def __init__(self, secret: bytes) -> None:
        self._shown = f"Bearer {secret.decode()}"

    def intercept(self, context: Any, call_next: Any) -> httpx.Response:
        context.request.headers["authorization"] = self._shown
        response: httpx.Response = call_next(context)
        return response


def registered_nodes(link: LinkFolder) -> list[tuple[str, str]]:
    """Return the name of every registered node, and whether it is "online", "offline" or only "registered"."""
    told = tomllib.loads((link.home / CONFIG).read_text())["superlink"][CONNECTION]
    asking: Any = [RuntimeVersionHttpInterceptor(component_name="flwr CLI"), _Owner(read_private(link.secret))]
    try:
        with ControlHttpClient.from_server_address(
            str(told["address"]), False, link.loopback.authority.read_bytes(), asking
        ) as client:
            nodes = client.ListNodes(ListNodesRequest()).nodes_info
    except httpx.HTTPError as error:
        raise FedpuError(f"The server does not tell its owner who is registered: {error}.") from error
    return sorted((node.name, node.status) for node in nodes if node.status != "unregistered")
