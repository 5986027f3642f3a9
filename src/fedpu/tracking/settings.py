"""The ``[record]`` table of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from fedpu.registry import Settings
from fedpu.tracking.base import Tracker, numbers
from fedpu.tracking.trackers import TRACKERS


class Record(Settings):
    """Where rounds are written besides the run directory. The result does not depend on it."""

    trackers: tuple[str, ...] = Field(
        (),
        description="tools that rounds are also written for, in their own formats: tensorboard, mlflow, or your own as "
        "module:Class",
    )

    @field_validator("trackers")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in TRACKERS:
                raise ValueError(f"it should be a list of {', '.join(TRACKERS)}, or module:Class; '{name}' is neither")
        return names

    def check(self) -> None:
        """Refuse to start where a tool is not installed."""
        for name in self.trackers:
            TRACKERS[name].check()

    @contextmanager
    def tracking(self, folder: Path | None, config: Mapping[str, Any], done: int) -> Iterator[Tracking]:
        """Tell all trackers of a run that is recorded in ``folder`` and has ``done`` rounds behind it."""
        if folder is not None:
            self.check()
        trackers: list[Tracker] = [TRACKERS[name]() for name in self.trackers] if folder is not None else []
        finished = False
        try:
            for tracker in trackers:
                assert folder is not None
                tracker.start(folder, config, done)
            yield Tracking(trackers)
            finished = True
        finally:
            for tracker in trackers:
                tracker.end(finished)


class Tracking:
    """Tells several trackers of a round."""

    def __init__(self, trackers: list[Tracker]) -> None:
        self._trackers = trackers

    def log(self, line: Mapping[str, Any]) -> None:
        """Take a line of ``rounds.jsonl``."""
        if self._trackers:
            values = numbers(line)
            for tracker in self._trackers:
                tracker.log(line["round"], values)
