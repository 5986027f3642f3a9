"""What the owner of a SuperLink asks it, where Flower's own command does not tell, or takes a process each time."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedpu.errors import FedpuError
from fedpu.flower.access import read_private
from fedpu.flower.link_folder import LinkFolder
from fedpu.flower.private import (
    ControlHttpClient,
    FlowerError,
    ListNodesRequest,
    RegisterNodeRequest,
    RuntimeVersionHttpInterceptor,
    public_key_to_bytes,
)
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
    with _control(link) as client:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
    return sorted((node.name, node.status) for node in nodes if node.status != "unregistered")


def register_node(link: LinkFolder, public_key: Path, name: str) -> None:
    """Let the node with this key in. ``flwr supernode register`` asks the same, with a process for each node."""
    try:
        key: Any = load_ssh_public_key(public_key.read_bytes())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise FedpuError(f"'{public_key}' is no public key of a node: {error}.") from error
    with _control(link) as client:
        client.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key), name=name))


@contextmanager
def _control(link: LinkFolder) -> Iterator[ControlHttpClient]:
    """Give what asks the SuperLink; what it answers to a request that it refuses becomes a sentence."""
    told = tomllib.loads((link.home / CONFIG).read_text())["superlink"][CONNECTION]
    asking: Any = [RuntimeVersionHttpInterceptor(component_name="flwr CLI"), _Owner(read_private(link.secret))]
    try:
        with ControlHttpClient.from_server_address(
            str(told["address"]), False, link.loopback.authority.read_bytes(), asking
        ) as client:
            yield client
    except httpx.HTTPStatusError as error:
        refusal = FlowerError.from_json(error.response.text)
        raise FedpuError(f"The server refuses: {refusal.message if refusal else error}") from error
    except httpx.HTTPError as error:
        raise FedpuError(f"The server does not answer its owner: {error}. Is 'fedpu deploy serve' running?") from error
