"""The in-process engine: client updates one after another, or spread over worker processes on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Literal

import safetensors.torch
import torch
from pydantic import Field, field_validator

from fedpu.engine.base import Clients, Engine, Job, ModelState, Update, Work
from fedpu.engine.client import ClientTrainer
from fedpu.errors import TrainingError


class LocalEngine(Engine):
    """Plain PyTorch on this machine. The result is the same for any number of workers."""

    name: Literal["local"] = "local"
    workers: int = Field(0, ge=0, description="processes that train clients, a core each; 0: one a core")
    device: str = Field("auto", description='"auto" (a GPU when there is one), "cpu", "cuda", "cuda:1", …')

    @field_validator("device")
    @classmethod
    def _usable(cls, value: str) -> str:
        if value == "auto":
            return value
        try:
            device = torch.device(value)
        except RuntimeError as error:
            raise ValueError("must be 'auto', 'cpu', 'cuda' or another device of PyTorch's") from error
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise ValueError(f"there is no such GPU here ({torch.cuda.device_count()} found); use 'auto' or 'cpu'")
        return value

    def compute_device(self) -> torch.device:
        """Return the device of training and evaluation."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    @contextmanager
    def start(self, job: Job) -> Iterator[Clients]:
        """Start the workers. Every one computes with a single thread: more would fight over the cores and change
        bits.
        """
        device = self.compute_device()
        workers = min(self.workers or _cores(), len(job.federation)) if device.type == "cpu" else 1
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            if workers == 1:
                yield _InProcess(job, device)
            else:
                with _executor(job, workers) as executor:
                    try:
                        yield _Workers(executor, workers)
                    except BaseException:
                        executor.shutdown(wait=False, cancel_futures=True)
                        raise
        finally:
            torch.set_num_threads(threads)


class _InProcess(Clients):
    def __init__(self, job: Job, device: torch.device) -> None:
        self._trainer = ClientTrainer(job, device)

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        return (self._trainer.update(model, piece) for piece in work)


class _Workers(Clients):
    def __init__(self, executor: ProcessPoolExecutor, workers: int) -> None:
        self._executor = executor
        self._workers = workers

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        # Bytes, not tensors: tensors would travel as one file descriptor each.
        packed = safetensors.torch.save(model)
        # Several clients a message when there are many, yet enough messages that no worker waits long for the last.
        chunk = max(1, len(work) // (self._workers * 8))
        try:
            yield from self._executor.map(_update, [packed] * len(work), work, chunksize=chunk)
        except BrokenProcessPool as error:
            raise TrainingError(
                "A worker process was killed, most likely because memory ran out. Set engine.workers = 1, or use a "
                "smaller model or batch."
            ) from error


_trainer: ClientTrainer | None = None  # of a worker process; workers share nothing else


def _start_worker(job: Job) -> None:
    global _trainer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _trainer = ClientTrainer(job, torch.device("cpu"))


def _exit_with_parent() -> None:
    """End this worker when the main process is killed; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _update(packed: bytes, work: Work) -> Update:
    assert _trainer is not None
    return _trainer.update(safetensors.torch.load(packed), work)


def _executor(job: Job, workers: int) -> ProcessPoolExecutor:
    # Forked workers share the data's memory with this process; where there is no fork, the job is sent to each.
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    return ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context(method), initializer=_start_worker, initargs=(job,)
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
