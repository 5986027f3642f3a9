"""Workers: processes of this machine that run pieces of work in parallel, with a single thread each.

Results do not depend on the number of workers: pieces are cut before anybody knows who takes them, and come back in
an order of their own.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import safetensors.torch
import torch

from fedpu.engine.base import ModelState, Update
from fedpu.errors import TrainingError


class Trainer(ABC):
    """What a worker needs: something that turns the global model and a piece of work into an update."""

    @abstractmethod
    def update(self, model: ModelState, work: Any) -> Update:
        """Do a piece of work."""


class Pool:
    """Trains pieces of work, in this process or on workers."""

    def __init__(self, trainer: Trainer | None, executor: ProcessPoolExecutor | None, workers: int) -> None:
        self._trainer = trainer
        self._executor = executor
        self._ahead = 4 * workers

    def update(self, model: ModelState, work: Sequence[Any], costs: Sequence[float]) -> Iterator[Update]:
        """Yield the updates of all work, the costliest pieces first, so that no core waits for one at the end."""
        ordered = [work[index] for index in sorted(range(len(work)), key=lambda index: -costs[index])]
        if self._trainer is not None:
            return (self._trainer.update(model, piece) for piece in ordered)
        return self._on_workers(model, ordered)

    def _on_workers(self, model: ModelState, work: Sequence[Any]) -> Iterator[Update]:
        """Keep a few pieces ahead of what has been yielded, so that memory does not grow with their number."""
        assert self._executor is not None
        packed = safetensors.torch.save(model)  # bytes: tensors would travel as one file descriptor each
        waiting: deque[Future[tuple[Update, bytes]]] = deque()
        try:
            for piece in work:
                if len(waiting) == self._ahead:
                    yield _unpacked(*waiting.popleft().result())
                waiting.append(self._executor.submit(_update, packed, piece))
            while waiting:
                yield _unpacked(*waiting.popleft().result())
        except BrokenProcessPool as error:
            raise TrainingError(
                "A worker process was killed, most likely because memory ran out. Set engine.workers = 1, or use a "
                "smaller model or batch."
            ) from error


def _unpacked(update: Update, trained: bytes) -> Update:
    return replace(update, model=safetensors.torch.load(trained))


@contextmanager
def start_pool(make_trainer: Callable[[], Trainer], workers: int) -> Iterator[Pool]:
    """Start the workers. With one, work is done in this process; either way with one thread, so that bits are the
    same.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if workers == 1:
            keep_freed_memory()
            yield Pool(make_trainer(), None, 1)
            return
        # Forked workers share the data's memory with this process; where there is no fork, the job is sent to each.
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        # Collecting garbage writes to every object, and what is written is not shared with forked workers any more.
        gc.collect()
        gc.freeze()
        with ProcessPoolExecutor(workers, context, _start_worker, (make_trainer,)) as executor:
            try:
                yield Pool(None, executor, workers)
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        gc.unfreeze()
        torch.set_num_threads(threads)


def keep_freed_memory() -> None:
    """Tell glibc to keep large freed blocks for the next step, instead of asking the system for zeroed pages each
    time.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):
            mmap_threshold, trim_threshold = -3, -1
            library.mallopt(mmap_threshold, 1 << 30)
            library.mallopt(trim_threshold, 1 << 30)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_trainer: Trainer | None = None  # of a worker process; workers share nothing else


def _start_worker(make_trainer: Callable[[], Trainer]) -> None:
    global _trainer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    end_with_parent()
    keep_freed_memory()
    torch.set_num_threads(1)
    _trainer = make_trainer()


def end_with_parent() -> None:
    """See to it that this worker ends when the main process is killed; it would wait for work for ever."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _update(packed: bytes, work: Any) -> tuple[Update, bytes]:
    assert _trainer is not None
    update = _trainer.update(safetensors.torch.load(packed), work)
    return replace(update, model={}), safetensors.torch.save(update.model)
