"""The page that 'fedpu deploy init' writes, as commands to be run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FEDPU = [sys.executable, "-m", "fedpu"]


def init(folder: Path, port: int, nodes: str, settings: Sequence[str], *options: str) -> dict[str, list[list[str]]]:
    """Write a deployment; return the commands of its page."""
    subprocess.run(
        [
            *(*FEDPU, "deploy", "init", str(folder), "--nodes", nodes, "--address", f"127.0.0.1:{port}", *options),
            *(part for setting in settings for part in ("--set", setting)),
        ],
        check=True,
        capture_output=True,
    )
    return commands(folder / "README.md")


def commands(page: Path) -> dict[str, list[list[str]]]:
    """Return the commands of each part of a page."""
    parts = page.read_text().split("\n## ")[1:]
    return {
        part.splitlines()[0]: [here(shlex.split(line)) for line in part.split("```")[1].splitlines()[1:] if line]
        for part in parts
    }


def here(command: list[str]) -> list[str]:
    """Return the command with the fedpu that is tested, wherever it is installed."""
    assert command[0] == "fedpu"
    return [*FEDPU, *command[1:]]
