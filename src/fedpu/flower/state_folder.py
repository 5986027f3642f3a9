"""What stays with a client on a node's disk, so that a node that is started anew goes on where it was.

Every client has a folder, and a file for each round. The last two are kept: a server that was killed asks for its last
round again, and the client must then begin it with the state of the round before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError

from fedpu.errors import FedpuError
from fedpu.round import Tensors

KEPT = 2
NAME = re.compile(r"round-(-?\d+)\.safetensors")
BEFORE_FIRST = -1


class StateFolder:
    """The states of the clients of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, client: int, round_: int) -> Tensors | None:
        """Return the state with which a client begins a round; None, if it has none yet."""
        found = [number for number in self._rounds(client) if number < round_]
        return self._read(client, max(found)) if found else None

    def save(self, client: int, round_: int, state: Tensors) -> None:
        """Keep the state that a client has after a round."""
        path = self._file(client, round_)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(".tmp")
        temporary.touch(mode=0o600)
        temporary.write_bytes(safetensors.torch.save({name: value.clone() for name, value in state.items()}))
        temporary.replace(path)
        earlier = sorted(number for number in self._rounds(client) if number <= round_)
        for number in self._rounds(client):
            if number not in earlier[-KEPT:]:  # too old, or of a round that the server has lost
                self._file(client, number).unlink(missing_ok=True)

    def latest(self) -> dict[int, Tensors]:
        """Return the last state of every client."""
        clients = sorted(int(folder.name) for folder in self.path.iterdir()) if self.path.is_dir() else []
        return {client: self._read(client, max(self._rounds(client))) for client in clients}

    def restore(self, states: Mapping[int, Tensors]) -> None:
        """Begin with the states of a checkpoint."""
        for client, state in states.items():
            self.save(client, BEFORE_FIRST, state)

    def _read(self, client: int, round_: int) -> Tensors:
        path = self._file(client, round_)
        try:
            return safetensors.torch.load(path.read_bytes())
        except (SafetensorError, OSError) as error:
            raise FedpuError(
                f"What this client kept between rounds can't be read from '{path}' ({error}). Remove the file, and the "
                "client begins anew."
            ) from error

    def _rounds(self, client: int) -> list[int]:
        folder = self.path / str(client)
        if not folder.is_dir():
            return []
        return [int(match[1]) for file in folder.iterdir() if (match := NAME.fullmatch(file.name))]

    def _file(self, client: int, round_: int) -> Path:
        return self.path / str(client) / f"round-{round_}.safetensors"
