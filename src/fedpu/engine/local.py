"""The engines of one machine: the readable ``reference``, and ``local``, which is fast and gives the same model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from pydantic import Field, field_validator

from fedpu.engine.base import Clients, Engine, Job
from fedpu.engine.client import ClientTrainer
from fedpu.engine.pool import Piece, Pool, Trainer, cores, start_pool
from fedpu.engine.stacked import twin_of
from fedpu.engine.stacked.trainer import StackTrainer, not_stacked_because, stacks
from fedpu.engine.states import ClientStates
from fedpu.round import Broadcast, Tensors, Update, Work

Cut = Callable[[Sequence[Work], bool], tuple[list[Piece], list[float]]]
"""cuts a round's work into pieces; says what each costs"""


class MachineEngine(Engine):
    """What both engines of one machine share: workers and a device."""

    workers: int = Field(0, ge=0, description="processes that train clients, one core each; 0: one per core")
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
        if device.type not in ("cpu", "cuda"):
            raise ValueError("must be 'auto', 'cpu' or 'cuda'")
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise ValueError(f"there is no such GPU here ({torch.cuda.device_count()} found); use 'auto' or 'cpu'")
        return value

    def compute_device(self) -> torch.device:
        """Return the device of training and evaluation."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def worker_count(self, job: Job) -> int:
        """Return how many processes train: no more than there are clients, and one beside a GPU."""
        return min(self.workers or cores(), len(job.federation)) if self.compute_device().type == "cpu" else 1

    @contextmanager
    def start(self, job: Job) -> Iterator[Clients]:
        """Start the workers."""
        with start_pool(self.trainer(job), self.worker_count(job)) as pool:
            yield MachineClients(job, pool, self.cut(job))

    @abstractmethod
    def trainer(self, job: Job) -> Callable[[], Trainer]:
        """Return a function that makes a worker's trainer."""

    def cut(self, job: Job) -> Cut:
        """Return how work is cut into pieces: each client is one."""
        return partial(_one_by_one, job)


class ReferenceEngine(MachineEngine):
    """Plain PyTorch, one client after another: what the other engines are tested against."""

    name: Literal["reference"] = "reference"

    def trainer(self, job: Job) -> Callable[[], Trainer]:
        """Return a trainer of single clients."""
        return partial(ClientTrainer, job, self.compute_device())


class LocalEngine(MachineEngine):
    """The same model, fast: clients are stacked where the network's layers and the method allow it."""

    name: Literal["local"] = "local"

    def trainer(self, job: Job) -> Callable[[], Trainer]:
        """Return a trainer of stacks, or of single clients where they can't be stacked."""
        return partial(StackTrainer, job) if self._stacks(job) else partial(ClientTrainer, job, self.compute_device())

    def cut(self, job: Job) -> Cut:
        """Return how work is cut into pieces: stacks of clients where they can be stacked."""
        if not self._stacks(job):
            return super().cut(job)
        network = twin_of(job.initial_model(), job.model.precision)
        assert network is not None
        return partial(stacks, job, network)

    def _stacks(self, job: Job) -> bool:
        return self.compute_device().type == "cpu" and not_stacked_because(job) is None

    def slow_because(self, job: Job) -> str | None:
        """Say why clients can't be stacked."""
        if self.compute_device().type != "cpu":
            return None  # on a GPU PyTorch's own layers are the fast path
        return not_stacked_because(job)


class MachineClients(Clients):
    """Clients on the workers of one machine. What stays with them is kept in this process."""

    def __init__(self, job: Job, pool: Pool, cut: Cut) -> None:
        self._stateful = job.stateful
        self._pool = pool
        self._cut = cut
        self._states = ClientStates()

    def update(self, sent: Broadcast, work: Sequence[Work], each: bool = True) -> Iterator[Update]:
        """Train on the workers; keep the states that come back."""
        pieces, costs = self._cut(work, each)
        if self._stateful:
            pieces = [piece._replace(states=self._states.of([one.client for one in piece.work])) for piece in pieces]
        # A round that is not gone through to its end leaves no state behind.
        new: dict[int, Tensors] = {}
        for trained in self._pool.update(sent, pieces, costs):
            new |= trained.states
            yield trained.update
        self._states.put(new)

    def states(self) -> ClientStates:
        """Return the states of all clients that have taken part."""
        return self._states

    def restore(self, states: ClientStates) -> None:
        """Go on with the states of a checkpoint."""
        self._states = states


def _one_by_one(job: Job, work: Sequence[Work], each: bool) -> tuple[list[Piece], list[float]]:
    sizes = job.federation.offsets.diff()
    costs = [float(sizes[one.client]) * one.epochs * one.share for one in work]
    return [Piece([one], {}, each) for one in work], costs
