"""Workers: processes of this machine that run pieces of work in parallel, with a single thread each.

Results do not depend on the number of workers: how work is cut into pieces, and the order in which their results are
added up, follow from the work alone.
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
from typing import NamedTuple

import safetensors.torch
import torch

from fedpu.errors import TrainingError
from fedpu.round import Broadcast, Tensors, Update, Work, prefixed

TOGETHER = 1000
"""examples that make it worth a message between processes: pieces with fewer travel together"""
FEWEST = 32
"""messages that a round has, if it has as many pieces: for more workers than most machines have"""
RESTARTS = 3
"""times that workers are started anew without a piece of work being done in between"""


class Piece(NamedTuple):
    """Work for a worker: some clients, and what each of them has kept."""

    work: list[Work]
    states: dict[int, Tensors]
    each: bool
    """is every client's update needed by itself?"""


class Trained(NamedTuple):
    """What comes of a client's work, or of several clients' together: an update, and new states that stay here."""

    update: Update
    states: dict[int, Tensors]


Bundle = list[Piece]
"""pieces that go to a worker together"""


class Trainer(ABC):
    """What a worker needs: something that turns what the server sends and a piece of work into updates."""

    @abstractmethod
    def update(self, sent: Broadcast, piece: Piece) -> list[Trained]:
        """Do a piece of work."""


class Pool:
    """Trains pieces of work, in this process or on workers."""

    def __init__(self, trainer: Trainer | None, crew: Crew | None, workers: int) -> None:
        self._trainer = trainer
        self._crew = crew
        self._ahead = 4 * workers

    def update(self, sent: Broadcast, pieces: Sequence[Piece], costs: Sequence[float]) -> Iterator[Trained]:
        """Yield what comes of all pieces, the costliest first, so that no core waits for one at the end."""
        bundles = _bundles(pieces, costs)
        if self._trainer is not None:
            trainer = self._trainer
            return (trained for bundle in bundles for trained in _train(trainer, sent, bundle))
        return self._on_workers(sent, bundles)

    def _on_workers(self, sent: Broadcast, pieces: Sequence[Bundle]) -> Iterator[Trained]:
        """Keep a few pieces ahead of what has been yielded, so that memory does not grow with their number.

        When a worker is killed, all are started anew and the pieces that were under way are done again: what comes of
        a piece follows from the piece alone, so that nothing of the result changes.
        """
        assert self._crew is not None
        packed, round_ = _pack_sent(sent), sent.round
        left, waiting = deque(pieces), deque[tuple[Bundle, "Future[list[_Packed]]"]]()
        killed = 0
        while left or waiting:
            try:
                while left and len(waiting) < self._ahead:
                    waiting.append((left[0], self._crew.submit(packed, round_, left[0])))
                    left.popleft()
                done = waiting[0][1].result()
            except BrokenProcessPool as error:
                killed += 1
                if killed > RESTARTS:
                    raise TrainingError(
                        f"Worker processes were killed {killed} times in a row, most likely because memory ran out. "
                        "Set engine.workers = 1, or use a smaller model or batch."
                    ) from error
                left.extendleft(piece for piece, _ in reversed(waiting))
                waiting.clear()
                self._crew.restart()
                continue
            waiting.popleft()
            killed = 0
            yield from map(_unpack_trained, done)


class Crew:
    """The worker processes of a pool."""

    def __init__(self, make_trainer: Callable[[], Trainer], workers: int) -> None:
        # Forked workers share the data's memory with this process; where there is no fork, the job is sent to each.
        method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
        self._context = multiprocessing.get_context(method)
        self._make_trainer = make_trainer
        self._workers = workers
        self._executor = self._start()

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._workers, self._context, _start_worker, (self._make_trainer,))

    def submit(self, packed: bytes, round_: int, bundle: Bundle) -> Future[list[_Packed]]:
        """Have some pieces of work done."""
        return self._executor.submit(_update, packed, round_, [_pack_piece(piece) for piece in bundle])

    def restart(self) -> None:
        """Start all workers anew, after one of them was killed: its pool is of no use then."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = self._start()

    def stop(self, now: bool) -> None:
        """End the workers; ``now`` leaves what is under way."""
        self._executor.shutdown(wait=not now, cancel_futures=now)


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
        with _no_collecting():
            crew = Crew(make_trainer, workers)
            try:
                yield Pool(None, crew, workers)
            except BaseException:
                crew.stop(now=True)
                raise
            crew.stop(now=False)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Leave all objects that there are to themselves: collecting garbage writes to every one of them, and what is
    written is not shared with forked workers any more. Where somebody else has done so, it stays as they want it.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


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


def _update(packed: bytes, round_: int, bundle: list[tuple[Piece, bytes]]) -> list[_Packed]:
    assert _trainer is not None
    done = _train(_trainer, _unpack_sent(packed, round_), [_unpack_piece(*piece) for piece in bundle])
    return [_pack_trained(trained) for trained in done]


def _bundles(pieces: Sequence[Piece], costs: Sequence[float]) -> list[Bundle]:
    """Return the pieces, the costliest first, and small ones together."""
    bundles: list[Bundle] = []
    filled, enough = 0.0, min(TOGETHER, sum(costs) / FEWEST)
    for index in sorted(range(len(pieces)), key=lambda index: -costs[index]):
        if not bundles or filled + costs[index] > enough:
            bundles.append([])
            filled = 0.0
        bundles[-1].append(pieces[index])
        filled += costs[index]
    return bundles


def _train(trainer: Trainer, sent: Broadcast, bundle: Bundle) -> list[Trained]:
    """Return what comes of some pieces: their mean, weighted by n_k, where no client's own update is needed."""
    done = [trained for piece in bundle for trained in trainer.update(sent, piece)]
    updates = [trained.update for trained in done]
    if any(piece.each for piece in bundle) or not _alike(updates):
        return done
    examples = sum(update.examples for update in updates)
    shares = [update.examples / examples for update in updates]
    mean = Update(
        client=updates[0].client,
        examples=examples,
        model=_mean([update.model for update in updates], shares),
        terms={
            name: sum(share * update.terms[name] for share, update in zip(shares, updates, strict=True))
            for name in updates[0].terms
        },
        shared=_mean([update.shared for update in updates], shares),
        clients=sum(update.clients for update in updates),
    )
    return [Trained(mean, {client: state for trained in done for client, state in trained.states.items()})]


def _alike(updates: Sequence[Update]) -> bool:
    """Do several updates hold the same, and nothing that a mean would lose?"""
    if len(updates) < 2 or any(update.extras or not update.examples for update in updates):
        return False
    kinds = {(frozenset(update.terms), frozenset(update.shared)) for update in updates}
    return len(kinds) == 1 and all(value.is_floating_point() for value in updates[0].model.values())


def _mean(every: Sequence[Tensors], shares: Sequence[float]) -> Tensors:
    """Return the weighted mean of tensors by name, summed in 64 bits and rounded once."""
    sums: Tensors = {}
    for one, share in zip(every, shares, strict=True):
        for name, value in one.items():
            sums[name] = sums[name].add_(value, alpha=share) if name in sums else value.double().mul_(share)
    return {name: value.to(every[0][name].dtype) for name, value in sums.items()}


# Between processes tensors travel as bytes: as tensors they would take one file descriptor each.


class _Packed(NamedTuple):
    update: Update
    """without its tensors"""
    tensors: bytes
    clients: list[int]
    """those that have a state, which may be empty"""
    states: bytes


def _pack_sent(sent: Broadcast) -> bytes:
    return _pack({"model": sent.model, "extras": sent.extras, "shared": sent.shared})


def _unpack_sent(packed: bytes, round_: int) -> Broadcast:
    parts = _unpack(packed)
    return Broadcast(parts.get("model", {}), parts.get("extras", {}), parts.get("shared", {}), round_)


def _pack_piece(piece: Piece) -> tuple[Piece, bytes]:
    groups = {f"state {k}": state for k, state in piece.states.items()}
    groups |= {f"extras {work.client}": work.extras for work in piece.work}
    bare = [replace(work, extras={}) if work.extras else work for work in piece.work]
    return Piece(bare, {k: {} for k in piece.states}, piece.each), _pack(groups)


def _unpack_piece(piece: Piece, packed: bytes) -> Piece:
    groups = _unpack(packed)
    return Piece(
        [replace(work, extras=groups.get(f"extras {work.client}", {})) for work in piece.work],
        {k: groups.get(f"state {k}", {}) for k in piece.states},
        piece.each,
    )


def _pack_trained(trained: Trained) -> _Packed:
    update = trained.update
    tensors = _pack({"model": update.model, "extras": update.extras, "shared": update.shared})
    states = _pack({str(k): state for k, state in trained.states.items()})
    return _Packed(replace(update, model={}, extras={}, shared={}), tensors, list(trained.states), states)


def _unpack_trained(packed: _Packed) -> Trained:
    parts = _unpack(packed.tensors)
    model, extras, shared = (parts.get(name, {}) for name in ("model", "extras", "shared"))
    full = replace(packed.update, model=model, extras=extras, shared=shared)
    states = _unpack(packed.states)
    return Trained(full, {k: states.get(str(k), {}) for k in packed.clients})


def _pack(groups: dict[str, Tensors]) -> bytes:
    # Two names for one tensor are two tensors in the file, which safetensors asks us to say.
    own = {name: value.clone() for name, value in prefixed(groups).items()}
    return safetensors.torch.save(own)


def _unpack(packed: bytes) -> dict[str, Tensors]:
    """Return tensors in groups by the first part of their names."""
    groups: dict[str, Tensors] = {}
    for name, value in safetensors.torch.load(packed).items():
        group, _, rest = name.partition(".")
        groups.setdefault(group, {})[rest] = value
    return groups
