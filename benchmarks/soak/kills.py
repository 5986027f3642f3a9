"""Runs that are killed (SIGKILL) at random moments and resumed until they end: the same bits as if nobody had."""

from __future__ import annotations

import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from runs import VARIANTS, config, ends_as, undisturbed
from tally import Tally

from fedpu.applications.experiment import resume, run

LONGEST = 300.0
"""seconds after which a run that should have ended has hung"""
SEEDS = 3


def kills(tally: Tally, rng: np.random.Generator, folder: Path) -> Iterator[None]:
    """Kill and resume one run after another."""
    typical: dict[str, float] = {}
    while True:
        variant, seed = str(rng.choice(list(VARIANTS))), int(rng.integers(SEEDS))
        started = time.monotonic()
        whole = folder / f"whole-{variant}-{seed}"
        known = whole.exists()
        expected = undisturbed(variant, seed, whole)
        if not known:
            typical[variant] = max(typical.get(variant, 0.0), time.monotonic() - started)
        trial = folder / "killed"
        shutil.rmtree(trial, ignore_errors=True)
        moments: list[str] = []
        while True:
            again = not moments or rng.random() < 0.25
            moment = float(rng.uniform(0, 1.1 * typical[variant])) if again else None
            status = _child(lambda: _go_on(variant, seed, trial), trial, moment)  # noqa: B023
            if status != "killed":
                break
            lines = trial / "rounds.jsonl"
            moments.append(f"round {lines.read_text().count(chr(10)) if lines.exists() else 0}")
        if not moments:
            continue  # it was over before it could be killed
        about = f"{variant}, seed {seed}, killed in {', '.join(moments)}"
        if status != "ended":
            tally.add("did not end", f"{about}: {status}")
        elif not ends_as(trial, expected):
            tally.add("ended with other bits", about)
        else:
            tally.add("ended with the same bits")
        tally.ends["kills in all"] += len(moments)
        yield


def _go_on(variant: str, seed: int, folder: Path) -> None:
    if (folder / "config.toml").exists():
        resume(folder)
    else:
        run(config(variant, seed), out=folder)


def _child(work: Callable[[], None], folder: Path, kill_after: float | None) -> str:
    """Do work in a process of its own; return "killed", "ended", or how it failed."""
    said = folder.with_suffix(".txt")
    said.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            said.write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + (LONGEST if kill_after is None else kill_after)
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "ended" if status == 0 else said.read_text() if said.exists() else f"status {status}"
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return "ended" if status == 0 else said.read_text()
    return "killed" if kill_after is not None else f"it hung for {LONGEST:.0f} seconds"
