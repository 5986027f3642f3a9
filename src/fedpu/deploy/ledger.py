"""A node's ledger on its own disk: what it agreed to when it joined, and everything that it has given out since.

It is written before anything leaves, so that whatever is interrupted afterwards has been counted: a round that is
asked for again is given out again, with new noise, and counts again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpu.deploy.accepts import Accepts, NotAccepted
from fedpu.errors import FedpuError
from fedpu.flower.access import private_folder
from fedpu.privacy import Privacy
from fedpu.privacy.accountant import gaussian_epsilon
from fedpu.record import write_atomically

UPDATE, NEGATIVES = "update", "negatives"
"""kinds of what a node gives out"""


@dataclass(frozen=True)
class Release:
    """Something that leaves a node: an update or its part of the one sum, and the noise that hides it."""

    kind: str
    differential: str
    multiplier: float

    @classmethod
    def of(cls, kind: str, privacy: Privacy) -> Release:
        """Return what such a thing is under these settings."""
        multiplier = privacy.noise_multiplier if kind == UPDATE else privacy.lent_noise_multiplier
        return cls(kind, privacy.differential, 0.0 if privacy.differential == "off" else multiplier)

    @property
    def hidden(self) -> float:
        """The multiplier that an accountant is told: any two data sets of a client are two clips apart."""
        return self.multiplier / 2


class Ledger:
    """What a node has on its disk of all of its runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "ledger.json"
        found = self._read()
        self.first: Privacy | None = Privacy(**found["first"]) if found["first"] else None
        """the privacy of the first run that was joined"""
        self.releases: dict[Release, int] = {Release(*key): count for *key, count in found["releases"]}
        self._joined: dict[str, list[str]] = found["joined"]
        self._fixed: dict[str, dict[str, Any]] = found["fixed"]

    @property
    def updates(self) -> int:
        """How many updates have left."""
        return sum(count for release, count in self.releases.items() if release.kind == UPDATE)

    def epsilon(self, delta: float, more: Release | None = None) -> float:
        """Return ε of everything that has left, and of one more thing."""
        counts = dict(self.releases)
        if more is not None:
            counts[more] = counts.get(more, 0) + 1
        # Whatever left without noise has no ε, and the accountant need not be installed to know that.
        if any(release.hidden == 0 for release, count in counts.items() if count):
            return math.inf
        return gaussian_epsilon([(release.hidden, count) for release, count in counts.items()], delta)

    def refuse_beyond(self, accepts: Accepts, release: Release, who: str) -> None:
        """Refuse to give out what the owner's budget does not cover."""
        if release.kind == UPDATE and accepts.rounds is not None and self.updates >= accepts.rounds:
            raise NotAccepted(
                f"'{who}' has given out {self.updates} updates, all that its owner accepts (rounds in [accepts])."
            )
        if accepts.epsilon is None:
            return
        spent = self.epsilon(accepts.delta, release)
        if spent > accepts.epsilon:
            raise NotAccepted(
                f"'{who}' gives out nothing more: with this it would have spent ε = {spent:.4g} at δ = "
                f"{accepts.delta:g}, and its owner accepts {accepts.epsilon:g} (epsilon in [accepts])."
            )

    def count(self, release: Release) -> None:
        """Note what is about to leave."""
        self.releases[release] = self.releases.get(release, 0) + 1
        self._write()

    def join(self, run: int, config: str, privacy: Privacy) -> None:
        """Note that a run of this configuration, by its hash, is joined."""
        joined = self._joined.setdefault(str(run), [])
        if config in joined:
            return
        joined.append(config)
        self.first = self.first or privacy
        self._write()

    def refuse_not_joined(self, run: int, config: str) -> None:
        """Refuse a message of a run or configuration that this node has not joined."""
        if config not in self._joined.get(str(run), []):
            raise NotAccepted("The configuration is not the one with which this node has joined the run.")

    def fix(self, run: str, facts: Mapping[str, Any]) -> None:
        """Hold a run, by the name that it keeps, to what its first messages said of it.

        What a message does not say is None; it may be said later, and then stays.
        """
        fixed = self._fixed.get(run, {})
        said = {name: value for name, value in facts.items() if value is not None}
        for name, value in said.items():
            if fixed.get(name, value) != value:
                raise NotAccepted(f"The server has changed {name} since this node joined the run.")
        if fixed | said != fixed:
            self._fixed[run] = fixed | said
            self._write()

    def use(self, run: int, number: str) -> bool:
        """Note that a request with this number, or for what it names, is answered; say False if it was before, also by
        an earlier process.
        """
        path = private_folder(self._folder) / f"asked-{run}"
        if path.exists() and number in path.read_text("ascii").split():
            return False
        with open(path, "a", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(f"{number}\n")
            file.flush()
            os.fsync(file.fileno())
        return True

    def _read(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"first": None, "releases": [], "joined": {}, "fixed": {}}
        try:
            found: dict[str, Any] = json.loads(self._file.read_text("utf-8"))
            if found.keys() != empty.keys():
                raise ValueError("other keys than expected")
        except FileNotFoundError:
            return empty
        except (OSError, ValueError, AttributeError) as error:
            # Beginning anew in silence would forget what was spent.
            raise FedpuError(
                f"This node's ledger '{self._file}' can't be read ({error}). Restore it from a copy: without it nobody "
                "knows what the node has given out."
            ) from error
        return found

    def _write(self) -> None:
        private_folder(self._folder)
        stored = {
            "first": None if self.first is None else self.first.model_dump(),
            "releases": [[one.kind, one.differential, one.multiplier, count] for one, count in self.releases.items()],
            "joined": self._joined,
            "fixed": self._fixed,
        }
        write_atomically(self._file, (json.dumps(stored, indent=1) + "\n").encode(), 0o600)
