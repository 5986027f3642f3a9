"""How far a run has come, read from its directory while it goes on; nothing is written there."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedpu.errors import FedpuError
from fedpu.record.files import reading
from fedpu.record.lock import holder

RECENT = 10
"""rounds whose pace is taken for that of the rest"""


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    path: Path
    method: str
    seed: int
    done: int
    rounds: int
    accuracy: float | None
    """the last that was measured"""
    seconds: float
    """seconds that the finished rounds took"""
    pace: float | None
    """seconds of a round, of the last few"""
    state: Literal["running", "stopped", "finished"]

    @property
    def name(self) -> str:
        """What it is called here: its folder."""
        return self.path.name or str(self.path.resolve().name)

    @property
    def left(self) -> str | None:
        """How long it will take, in words; nothing where that can't be told."""
        if self.state != "running" or self.pace is None:
            return None
        seconds = round(self.pace * (self.rounds - self.done))
        minutes, rest = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

    @property
    def sentence(self) -> str:
        """Where it stands, in words."""
        told = f"round {self.done} of {self.rounds}"
        if self.accuracy is not None:
            told += f", accuracy {self.accuracy:.2%}"
        return f"{told}, {self.state}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "run": str(self.path),
            "method": self.method,
            "seed": self.seed,
            "round": self.done,
            "rounds": self.rounds,
            "accuracy": self.accuracy,
            "seconds": self.seconds,
            "state": self.state,
        }


def progress_of(path: Path) -> list[Progress]:
    """Return where a run stands, or all runs in a folder, however deep 'compare' and 'reproduce' have put them."""
    if (path / "config.toml").is_file():
        return [_progress(path)]
    found = sorted(file.parent for file in [*path.glob("*/config.toml"), *path.glob("runs/*/config.toml")])
    if not found:
        raise FedpuError(f"There is no run in '{path}': it has no config.toml, and no folder with one.")
    return [_progress(run) for run in found]


def _progress(path: Path) -> Progress:
    with reading(path / "config.toml"):
        config = tomllib.loads((path / "config.toml").read_text("utf-8"))
    lines = _lines(path / "rounds.jsonl")
    finished = (path / "result.json").exists()
    seconds = [float(line.get("seconds") or 0.0) for line in lines]
    return Progress(
        path,
        str(config.get("method", {}).get("name", "")),
        int(config.get("seed", 0)),
        len(lines),
        int(config.get("aggregation", {}).get("rounds", len(lines))),
        next((line["accuracy"] for line in reversed(lines) if line.get("accuracy") is not None), None),
        sum(seconds),
        sum(seconds[-RECENT:]) / len(seconds[-RECENT:]) if seconds else None,
        "finished" if finished else "running" if _at_work(path) else "stopped",
    )


def _at_work(path: Path) -> bool:
    """Is somebody at work on the run? Where the system has no locks to tell by, it is taken to be so."""
    return True if sys.platform == "win32" else holder(path / ".lock") is not None


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the rounds that are written out; the last line may be half written just now."""
    found: list[dict[str, Any]] = []
    if path.exists():
        for text in path.read_text("utf-8").splitlines():
            try:
                found.append(json.loads(text))
            except json.JSONDecodeError:
                break
    return found
