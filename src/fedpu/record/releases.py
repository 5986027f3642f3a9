"""Who was asked in each round, noted beforehand: what an interrupted round has released is counted, too."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fedpu.errors import FedpuError
from fedpu.record.files import telling_disk_errors


class Releases:
    """A file with one line for every time that clients were asked for an update of a round."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[tuple[int, list[int]]]:
        """Return all rounds so far, counted from 0, and who was asked; a round that was repeated is there again."""
        if not self._path.exists():
            return []
        whole, _, _ = self._path.read_bytes().rpartition(b"\n")  # a line cut short was written before anybody was asked
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            return [(int(line["round"]), [int(client) for client in line["clients"]]) for line in lines]
        except (ValueError, TypeError, KeyError) as error:
            raise FedpuError(
                f"'{self._path}' is damaged ({error}). Restore it from a copy: without it nobody knows how often "
                "clients were asked."
            ) from error

    def add(self, round_: int, clients: list[int]) -> None:
        """Note whom a round is about to ask."""
        line = json.dumps({"round": round_, "clients": clients}) + "\n"
        with telling_disk_errors(self._path), open(self._path, "a+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            if size and file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
