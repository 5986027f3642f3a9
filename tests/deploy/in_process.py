"""A deployment in one process: the real server, the real nodes with keys and files of their own, and invitations.

Only Flower's processes and sockets are missing. Whoever is between server and nodes can be played: see ``Table.tap``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata

from fedpu.applications.training import Result
from fedpu.config import Config
from fedpu.data import Dataset
from fedpu.deploy.certificates import write_node_key
from fedpu.deploy.client import NODE_FILE, deployed_app
from fedpu.deploy.invitation import RunKey, new_owner_key, read_owner_key
from fedpu.deploy.invited import SignedWire
from fedpu.deploy.server import serve
from fedpu.flower.wire import Request, Wire

PRIVATE, PUBLIC = new_owner_key()
OWNER = read_owner_key(PRIVATE)
NAMES = ("east", "north", "south", "west")
EXAMPLES = 80
"""of each node"""
Tap = Callable[[str, str, RecordDict], RecordDict]
"""is shown (name, kind, content) of a message on its way, and returns what arrives"""
Change = Callable[[Request], Request]
"""is shown what an honest server would send, and returns what this one sends"""


class ActiveServer(SignedWire):
    """A server that has the key of a run, and does with it what it likes."""

    def __init__(self, wire: Table, run: int, key: RunKey, change: Change) -> None:
        super().__init__(wire, run, key)
        self._change = change
        self._registered = wire.keys

    @property
    def clients(self) -> dict[str, str]:
        """What it knows itself, whatever the owner has signed."""
        return self._registered

    def push(self, requests: Sequence[Request]) -> list[str | None]:
        return super().push([self._change(request) for request in requests])


class Table(Wire):
    """Server and nodes at one table. Node k is the k-th name; each has its data, key, file and state in ``folder``."""

    def __init__(self, folder: Path, data: Dataset, accepts: str = "", names: Sequence[str] = NAMES) -> None:
        self.folder, self.named = folder, list(names)
        self.app, self.run = deployed_app(), 7
        self.contexts: dict[str, Context] = {}
        self.asked: list[tuple[str, str]] = []
        self.sent: list[tuple[str, str, RecordDict]] = []
        self.refusals: list[str] = []
        self.tap_request: Tap = lambda name, kind, content: content
        self.tap_reply: Tap = lambda name, kind, content: content
        self._waiting: dict[str, Message] = {}
        share = EXAMPLES
        for k, name in enumerate(self.named):
            x, y = (part[k * share : (k + 1) * share] for part in (data.inputs.numpy(), data.labels.numpy()))
            mine = (y % len(self.named) == k) & (np.arange(share) % 3 > 0)
            np.savez(folder / f"{name}.npz", x=x, y=np.where(mine, y, -1))
            write_node_key(folder / f"{name}.key")
            self.write_file(name, accepts)
            self.restart(name)

    def write_file(self, name: str, accepts: str = "") -> None:
        """Write a node's file."""
        lines = [f'name = "{name}"', f'data = "{name}.npz"', f'key = "{name}.key"', f'server_key = "{PUBLIC}"']
        (self.folder / f"{name}.toml").write_text("\n".join([*lines, accepts]) + "\n")

    def restart(self, name: str) -> None:
        """Start a node, or start it again: it has lost everything but its disk."""
        number = self.named.index(name) + 1
        config: Any = {NODE_FILE: str(self.folder / f"{name}.toml")}
        self.contexts[name] = Context(
            run_id=self.run, node_id=number, node_config=config, state=RecordDict(), run_config={}
        )

    def state(self, name: str) -> Path:
        """Return where a node keeps its ledger."""
        return self.folder / f"{name}.state"

    @property
    def keys(self) -> dict[str, str]:
        """The public keys by name, as they were registered."""
        return {name: " ".join((self.folder / f"{name}.key.pub").read_text().split()[:2]) for name in self.named}

    def signed(
        self, *configs: Config, keys: dict[str, str] | None = None, run: int = 7, change: Change | None = None
    ) -> SignedWire:
        """Return the server's wire of a run that the owner has invited the nodes to.

        ``change`` makes it an active server, which sends something else than it should, and signs it.
        """
        if run != self.run:
            self.run = run
            for name in self.named:
                self.restart(name)
        texts = [config.to_toml() for config in configs]
        if keys is None:  # as 'fedpu deploy start' does
            keys = self.keys if any(config.privacy.secure_aggregation for config in configs) else {}
        key = RunKey.create(OWNER, run, texts, 1.0, keys)
        return ActiveServer(self, run, key, change or (lambda request: request))

    def train(
        self, config: Config, out: str = "run", resume: bool = False, run: int = 7, change: Change | None = None
    ) -> Result:
        """Run a configuration to its end."""
        return serve(self.signed(config, run=run, change=change), config, self.folder / out, resume)

    def nodes(self) -> list[int]:
        return [number + 1 for number in range(len(self.named))]

    def names(self) -> dict[int, str]:
        return {number + 1: name for number, name in enumerate(self.named)}

    def push(self, requests: Sequence[Request]) -> list[str | None]:
        numbers: list[str | None] = []
        for request in requests:
            name, number = self.named[request.node - 1], str(len(self.asked) + 1)
            content = self.tap_request(name, request.kind, RecordDict(dict(request.content)))
            self.asked.append((name, request.kind))
            self._waiting[number] = self._reply(name, request, content, number)
            numbers.append(number)
        return numbers

    def _reply(self, name: str, request: Request, content: RecordDict, number: str) -> Message:
        about = Metadata(self.run, number, 1, request.node, "", request.group, time.time(), 60.0, request.kind)
        reply = self.app(make_message(about, content), self.contexts[name])
        back = Metadata(self.run, f"r{number}", request.node, 1, number, request.group, time.time(), 60.0, request.kind)
        if reply.has_error():
            self.refusals.append(str(reply.error.reason))
            return make_message(back, error=reply.error)
        content = self.tap_reply(name, request.kind, reply.content)
        self.sent.append((name, request.kind, content))
        return make_message(back, content)

    def pull(self, numbers: Iterable[str]) -> list[Message]:
        return [self._waiting.pop(number) for number in numbers if number in self._waiting]


def own_data_config(*settings: str, clients: int = len(NAMES)) -> Config:
    """Return the configuration of a small run on clients with data of their own."""
    config = Config.from_dict(
        {
            "data": {"name": "digits"},
            "priors": {"source": "given", "values": [0.1] * 10},
            "model": {"name": "mlp", "hidden": [8]},
            "aggregation": {"rounds": 2, "batch_size": 50, "lr": 0.05},
            "engine": {"name": "flower", "clients": clients, "wait": 1.0},
        }
    )
    return config.with_(*settings)
