"""Soak: kills, damage, liars and bad inputs at random, for as long as is asked for.

    python benchmarks/soak --seconds 600 --out results/soak

A trial of every kind is made in turn, so that each gets its share of the time. The seed decides what is tried; when a
kill hits, the clock does. The exit status is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from damages import damages
from hostile import hostile
from inputs import inputs
from kills import kills
from tally import Tally, added, page, save

Trials = Callable[[Tally, np.random.Generator, Path], Iterator[None]]

KINDS: dict[str, tuple[float, Trials, str]] = {
    "runs killed": (0.5, kills, "a run that is killed at any moment and resumed ends with the same bits"),
    "damaged run files": (0.05, damages, "damage to a run's files is told, or makes no difference"),
    "hostile clients": (0.05, hostile, "whatever clients return, a run ends with a finite model or in a sentence"),
    "bad inputs": (0.4, inputs, "whatever is given is used, or refused in a sentence"),
}
"""with their shares of the time"""


def soak(seconds: float, seed: int, out: Path) -> dict[str, Tally]:
    """Make trials of all kinds until the time is over, always of the kind that has had least of its share."""
    tallies = {name: Tally(promise) for name, (_, _, promise) in KINDS.items()}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fedpu-soak-") as folder:
        running = {}
        for place, (name, (_, trials, _)) in enumerate(KINDS.items()):
            own = Path(folder) / str(place)
            own.mkdir()
            running[name] = trials(tallies[name], np.random.default_rng([seed, place]), own)
        while time.monotonic() - started < seconds:
            name = min(KINDS, key=lambda name: tallies[name].seconds / KINDS[name][0])
            begun = time.monotonic()
            next(running[name])
            tallies[name].seconds += time.monotonic() - begun
            save(tallies, seed, time.monotonic() - started, out)
        save(tallies, seed, time.monotonic() - started, out)
        os.chdir(out)  # out of the temporary folder, which the trials have made the working directory
    return tallies


def at_once(count: int, seconds: float, seed: int, out: Path) -> dict[str, Tally]:
    """Soak in several processes, and add up what they find."""
    parts = [out / f"seed-{seed + number}" for number in range(count)]
    same = [sys.executable, str(Path(__file__).parent), "--seconds", str(seconds)]
    children = [
        subprocess.Popen([*same, "--seed", str(seed + number), "--out", str(part)], stdout=subprocess.DEVNULL)
        for number, part in enumerate(parts)
    ]
    for child in children:
        child.wait()
    tallies = added([part / "soak.json" for part in parts])
    save(tallies, seed, seconds, out)
    return tallies


def main() -> None:
    """Read the command line, soak, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long")
    parser.add_argument("--seed", type=int, default=0, help="what is tried")
    parser.add_argument("--parallel", type=int, default=1, help="so many soaks at once, with seeds counted up")
    parser.add_argument("--out", type=Path, default=Path("runs/soak"), help="folder of the report")
    options = parser.parse_args()
    torch.set_num_threads(1)
    out = options.out.resolve()
    if options.parallel > 1:
        tallies = at_once(options.parallel, options.seconds, options.seed, out)
    else:
        tallies = soak(options.seconds, options.seed, out)
    print(page(tallies, options.seed, options.seconds))
    sys.exit(1 if any(tally.findings for tally in tallies.values()) else 0)


if __name__ == "__main__":
    main()
