"""What another tool is told of a run: its configuration, every round's numbers, and its end."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from fedpu.errors import ConfigError


class Tracker(ABC):
    """Writes a run in another tool's format. A run that is resumed goes on in the same place."""

    name: ClassVar[str]
    needs: ClassVar[str]
    """the module that it writes with, which an extra of the same name as the tracker installs"""

    @classmethod
    def check(cls) -> None:
        """Refuse to start where the tool is not installed."""
        if find_spec(cls.needs) is None:
            raise ConfigError(
                f"record.trackers has '{cls.name}', which is not installed: pip install 'fedpu[{cls.name}]', or take "
                "it out."
            )

    @abstractmethod
    def start(self, folder: Path, config: Mapping[str, Any], done: int) -> None:
        """Begin, or after ``done`` rounds go on with, the run that is recorded in ``folder``."""

    @abstractmethod
    def log(self, number: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a round."""

    @abstractmethod
    def end(self, finished: bool) -> None:
        """Put everything on disk; ``finished`` is False where the run was stopped."""


def numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of ``rounds.jsonl`` by name, those in tables as ``table/name``."""
    found: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, Mapping):
            found |= {f"{key}/{name}": number for name, number in numbers(value).items()}
        elif isinstance(value, int | float) and not isinstance(value, bool) and key != "round" and math.isfinite(value):
            found[key] = float(value)
    each = line.get("per_class_accuracy")
    if isinstance(each, list):
        found |= {f"per_class_accuracy/{c}": float(value) for c, value in enumerate(each) if value is not None}
    return found


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a configuration as ``table.key`` with its value as text."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = str(value)
    return found
