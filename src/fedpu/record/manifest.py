"""The checksums of a run directory: what every file must be, so that no damage goes unseen.

``manifest.json`` is written before the files that it speaks of are put in place, and it lists two checkpoints: the one
that was there before, and the next one. A run killed at any moment is therefore as one of the two says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpu.errors import FedpuError, warn
from fedpu.record.files import write_atomically

NAME = "manifest.json"
PREVIOUS = "checkpoint.previous.safetensors"
FORMAT = 1
BLOCK = 2**20
OWN = "sha256_of_the_rest"


@dataclass(frozen=True)
class Sum:
    """The length of some content, and its SHA-256."""

    length: int
    sha256: str

    @classmethod
    def of(cls, content: bytes) -> Sum:
        """Return the checksum of content in memory."""
        return cls(len(content), hashlib.sha256(content).hexdigest())

    @classmethod
    def of_file(cls, path: Path, length: int | None = None) -> Sum:
        """Return the checksum of a file, or of its beginning."""
        left, done, digest = length, 0, hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(BLOCK if left is None else min(BLOCK, left)):
                digest.update(block)
                done += len(block)
                left = None if left is None else left - len(block)
        return cls(done, digest.hexdigest())


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, and the lines of ``rounds.jsonl`` that go with it: the file may be longer, never shorter."""

    round: int
    file: Sum
    rounds: Sum


@dataclass(frozen=True)
class Manifest:
    """What the files of a run directory must be."""

    files: Mapping[str, Sum] = field(default_factory=dict)
    """those that do not change any more"""
    checkpoints: tuple[Checkpoint, ...] = ()
    """the last one and the next, or the last one alone"""

    def with_file(self, name: str, content: bytes) -> Manifest:
        """Return the manifest with one more file."""
        return replace(self, files={**self.files, name: Sum.of(content)})

    def dump(self) -> bytes:
        """Return the content of ``manifest.json``, with a checksum of its own."""
        values = {"format": FORMAT, **asdict(self)}
        return _text(values | {OWN: hashlib.sha256(_text(values)).hexdigest()})

    def write(self, folder: Path) -> None:
        """Put it in place."""
        write_atomically(folder / NAME, self.dump())

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Read the manifest of a folder; None, if it has none."""
        path = folder / NAME
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            values = json.loads(content)
            found = cls(
                {name: Sum(**value) for name, value in values["files"].items()},
                tuple(
                    Checkpoint(one["round"], Sum(**one["file"]), Sum(**one["rounds"])) for one in values["checkpoints"]
                ),
            )
            whole = found.dump() == content
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            whole = False
        if not whole:
            raise FedpuError(
                f"'{path}' is damaged, so that nobody can tell whether the files beside it are whole. Restore it from "
                "a copy. If there is none, remove it: the other files are then read unchecked."
            )
        return found


def checked(folder: Path) -> Manifest | None:
    """Compare every file of a run directory with the manifest; return it, or say which file is damaged.

    A run without one, by an earlier version, is read unchecked, and that is said once.
    """
    manifest = Manifest.read(folder)
    while manifest is not None:
        fault = _fault(folder, manifest)
        if fault is None:
            return manifest
        newer = Manifest.read(folder)
        if newer == manifest:
            raise FedpuError(fault)
        manifest = newer  # the run goes on while it is read
    warn(f"'{folder}' has no {NAME}, which runs of earlier versions lack: its files are read unchecked.")
    return None


def current(folder: Path, manifest: Manifest) -> Checkpoint | None:
    """Return which checkpoint is in place."""
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return None
    found = Sum.of_file(path)
    return next((one for one in manifest.checkpoints if one.file == found), None)


def _fault(folder: Path, manifest: Manifest) -> str | None:
    finished = (folder / "result.json").exists()
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.exists():
            if name in ("model.safetensors", "result.json") and not finished:
                continue  # killed before they were there
            return f"'{path}' is missing: restore it from a copy."
        if Sum.of_file(path) != expected:
            return _advice(path)
    return _checkpoint_fault(folder, manifest, finished)


def _checkpoint_fault(folder: Path, manifest: Manifest, finished: bool) -> str | None:
    path, rounds = folder / "checkpoint.safetensors", folder / "rounds.jsonl"
    if not path.exists():
        if len(manifest.checkpoints) < 2 and not finished:
            return None  # killed before the first was there
        return f"'{path}' is missing. {_previous_advice(folder, manifest) or 'Restore it from a copy.'}"
    here, previous = current(folder, manifest), folder / PREVIOUS
    if here is None:
        return _advice(path, _previous_advice(folder, manifest))
    if previous.exists() and Sum.of_file(previous) not in [one.file for one in manifest.checkpoints]:
        return _advice(previous, "It is not needed: remove it.")
    if not rounds.exists():
        return f"'{rounds}' is missing: restore it from a copy."
    if Sum.of_file(rounds, None if finished else here.rounds.length) != here.rounds:
        return _advice(rounds)
    return None


def _advice(path: Path, instead: str | None = None) -> str:
    advice = {
        "config.toml": "Put it back as it was. If you changed it on purpose, remove manifest.json, and all files are "
        "read unchecked.",
        "model.safetensors": "Remove it together with result.json, and 'fedpu run --resume' writes both again from the "
        "checkpoint.",
        "result.json": "Remove it, and 'fedpu run --resume' writes it again.",
    }
    what = instead or advice.get(path.name, "Restore it from a copy, or start a new run.")
    return f"'{path}' is damaged: it is not what the run has written (manifest.json has its checksum). {what}"


def _previous_advice(folder: Path, manifest: Manifest) -> str | None:
    previous = folder / PREVIOUS
    if not previous.exists():
        return None
    found = Sum.of_file(previous)
    whole = next((one for one in manifest.checkpoints if one.file == found), None)
    if whole is None:
        return None
    return (
        f"That of round {whole.round} is whole: copy '{previous}' over 'checkpoint.safetensors', and resume from there."
    )


def _text(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()


__all__ = ["NAME", "PREVIOUS", "Checkpoint", "Manifest", "Sum", "checked", "current"]
