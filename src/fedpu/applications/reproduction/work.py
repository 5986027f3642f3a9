"""Carrying a plan out: several runs at once, each in a process of its own, none of them twice.

A process has as many workers as cores are its due. Everything that must survive is in the run directories, so the
whole can be killed at any moment: a run goes on after its last finished round, to the same result.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

from fedpu.applications import experiment
from fedpu.applications.reproduction.plan import PlannedRun
from fedpu.engine import LocalEngine, cores, end_with_parent
from fedpu.errors import FedpuError
from fedpu.record import telling_disk_errors

POLL = 0.5
"""seconds between looks at the running processes"""


@dataclass
class Progress:
    """Where a plan stands: rounds done of each run, and the seconds per round takes where that is known."""

    runs: list[PlannedRun]
    done: set[str] = field(default_factory=set)
    running: dict[str, int] = field(default_factory=dict)
    """rounds finished of the runs under way"""
    jobs: int = 1
    _paces: dict[str, float] = field(default_factory=dict)

    def observe(self, run: PlannedRun, pace: float) -> None:
        """Take note of a run's seconds per round."""
        self._paces[run.name] = pace

    def seconds_left(self) -> float | None:
        """Return the time to go, from the paces of runs alike; nothing while none has been seen."""
        if not self._paces:
            return None
        kinds: dict[tuple[str, ...], list[float]] = {}
        for run in self.runs:
            if run.name in self._paces:
                for kind in _kinds(run):
                    kinds.setdefault(kind, []).append(self._paces[run.name])
        total = 0.0
        for run in self.runs:
            if run.name not in self.done:
                pace = next(sum(kinds[kind]) / len(kinds[kind]) for kind in _kinds(run) if kind in kinds)
                total += pace * (run.config.aggregation.rounds - self.running.get(run.name, run.rounds_done()))
        return total / self.jobs


def _kinds(run: PlannedRun) -> list[tuple[str, ...]]:
    """Return descriptions of a run, the closest first: runs of a kind take about the same time a round."""
    config = run.config
    method, aggregation = config.method.model_dump()["name"], config.aggregation.model_dump()["name"]
    model = config.model.model_dump()["name"]
    return [(config.data.name, model, aggregation, method), (config.data.name, model, aggregation), (model,), ()]


@contextmanager
def working_in(out: Path) -> Iterator[None]:
    """Keep a second command out of a folder while one is at work there; a killed one leaves no trace."""
    with telling_disk_errors(out):
        (out / "runs").mkdir(parents=True, exist_ok=True)
    with (out / "runs" / ".lock").open("w") as file:
        try:
            import fcntl  # not on every system
        except ImportError:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FedpuError(f"Another 'fedpu reproduce' is at work in '{out}'.") from error
        yield


def carry_out(runs: Sequence[PlannedRun], jobs: int) -> Iterator[Progress]:
    """Run what is missing, ``jobs`` at once; yield where things stand, again and again, until all is done."""
    progress = Progress(list(runs), jobs=jobs)
    left: list[PlannedRun] = []
    for planned in runs:
        outcome = planned.outcome()
        if outcome is None:
            left.append(planned)
        else:
            progress.done.add(planned.name)
    active: list[_Active] = []
    try:
        while left or active:
            while left and len(active) < jobs:
                active.append(_Active(left.pop(0), max(1, cores() // jobs)))
            for job in list(active):
                rounds = job.planned.rounds_done()
                progress.running[job.planned.name] = rounds
                if rounds > job.first:
                    progress.observe(job.planned, (time.monotonic() - job.started) / (rounds - job.first))
                if job.finished():
                    active.remove(job)
                    del progress.running[job.planned.name]
                    progress.done.add(job.planned.name)
            yield progress
            if active:
                time.sleep(POLL)
    finally:
        for job in active:
            job.stop()
    yield progress


class _Active:
    """A run in a process of its own."""

    def __init__(self, planned: PlannedRun, workers: int) -> None:
        self.planned = planned
        self.first = planned.rounds_done()
        self.started = time.monotonic()
        context = multiprocessing.get_context("spawn")
        self._answer, theirs = context.Pipe(duplex=False)
        self._process: SpawnProcess = context.Process(target=_run, args=(planned, workers, theirs))
        self._process.start()
        theirs.close()

    def finished(self) -> bool:
        """Has it ended well? One that ended otherwise is an error."""
        if self._process.is_alive():
            return False
        self._process.join()
        if self._process.exitcode != 0:
            told = self._answer.recv() if self._answer.poll() else "its process was killed; is there enough memory?"
            raise FedpuError(f"{self.planned.name} failed: {told}")
        return True

    def stop(self) -> None:
        """End the process; its finished rounds are kept."""
        self._process.terminate()
        self._process.join()


def _run(planned: PlannedRun, workers: int, answer: Connection) -> None:
    """Start or go on with a run, in this process."""
    end_with_parent()
    os.environ["OMP_NUM_THREADS"] = "1"
    engine = LocalEngine(workers=workers)
    try:
        planned.keep(experiment.run_or_resume(planned.config, planned.directory.path, engine=engine))
    except FedpuError as error:
        answer.send(str(error))
        raise SystemExit(1) from None
