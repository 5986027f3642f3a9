"""Random damage to the files of runs: it is told, or it makes no difference. It is never silent."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from inputs import guarded
from runs import config, ends_as, undisturbed
from tally import Tally

from fedpu.applications.experiment import resume, run
from fedpu.errors import FedpuError
from fedpu.record import RunDirectory

Damage = Callable[[bytes, np.random.Generator], bytes]


class Stop(Exception):
    """Ends a run in the middle."""


def damages(tally: Tally, rng: np.random.Generator, folder: Path) -> Iterator[None]:
    """Damage a copy of a finished or a stopped run, and use it."""
    variants = ("plain", "clients with a state")
    expected = {variant: undisturbed(variant, 0, folder / f"finished-{variant}") for variant in variants}
    for variant in variants:
        _stopped(variant, folder / f"stopped-{variant}")
    while True:
        variant, state = str(rng.choice(variants)), str(rng.choice(["finished", "stopped"]))
        trial = folder / "damaged"
        shutil.rmtree(trial, ignore_errors=True)
        shutil.copytree(folder / f"{state}-{variant}", trial)
        files = sorted(path for path in trial.iterdir() if path.name != ".lock")
        path = files[int(rng.integers(len(files)))]
        name, damage = DAMAGES[int(rng.integers(len(DAMAGES)))]
        before = path.read_bytes()
        _apply(name, damage, path, files, rng)
        about = f"{state} run ({variant}), {path.name}: {name}"
        if path.exists() and path.read_bytes() == before:
            continue  # nothing was damaged
        end, finding = guarded(lambda: _use(trial))  # noqa: B023
        if end == "worked" and not ends_as(trial, expected[variant]):
            end, finding = "silent", "it went on to another end without a word"
        tally.add("no difference" if end == "worked" else end, finding and f"{about}: {finding}")
        yield


def _stopped(variant: str, folder: Path) -> None:
    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 3:
            raise Stop

    if folder.exists():
        return
    try:
        run(config(variant, 0), out=folder, on_round=stop)
    except Stop:
        return


def _use(folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a manifest is missing is said, and is no error
        RunDirectory.open(folder)
        resume(folder)
        if RunDirectory.open(folder).result() is None:
            raise FedpuError("There is no result.")


def _apply(name: str, damage: Damage | None, path: Path, files: list[Path], rng: np.random.Generator) -> None:
    if damage is not None:
        path.write_bytes(damage(path.read_bytes(), rng))
    elif name == "removed":
        path.unlink()
    else:
        path.write_bytes(files[int(rng.integers(len(files)))].read_bytes())


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _block(content: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(len(content)))
    length = int(rng.integers(1, 4096))
    return content[:start] + bytes(len(content[start : start + length])) + content[start + length :]


DAMAGES: list[tuple[str, Damage | None]] = [
    ("a bit flipped", _flip),
    ("a byte drawn anew", lambda c, rng: (at := int(rng.integers(len(c))), c[:at] + rng.bytes(1) + c[at + 1 :])[1]),
    ("cut", lambda c, rng: c[: int(rng.integers(len(c)))]),
    ("bytes appended", lambda c, rng: c + rng.bytes(int(rng.integers(1, 100)))),
    ("a byte lost", lambda c, rng: (at := int(rng.integers(len(c))), c[:at] + c[at + 1 :])[1]),
    ("a block of zeros", _block),
    ("written twice", lambda c, _: c + c),
    ("lines exchanged", lambda c, rng: b"\n".join(rng.permutation(np.array(c.split(b"\n"), dtype=object)).tolist())),
    ("removed", None),
    ("another file in its place", None),
]
