"""The engines of one machine: the readable ``reference``, and ``local``, which is fast and gives the same model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
from pydantic import Field, field_validator

from fedpu.engine.base import Clients, Engine, Job, ModelState, Update, Work
from fedpu.engine.client import ClientTrainer
from fedpu.engine.estimating import Estimating, estimates
from fedpu.engine.pool import Pool, Trainer, cores, start_pool
from fedpu.engine.stacked import StackTrainer, can_stack, stacks


class MachineEngine(Engine):
    """What both engines of one machine share: workers and a device."""

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
            clients = self.clients(job, pool)
            yield Estimating(clients, job, self.compute_device()) if estimates(job.priors, job.method) else clients

    @abstractmethod
    def trainer(self, job: Job) -> Callable[[], Trainer]:
        """Return a function that makes a worker's trainer."""

    @abstractmethod
    def clients(self, job: Job, pool: Pool) -> Clients:
        """Return the clients on running workers."""


class ReferenceEngine(MachineEngine):
    """Plain PyTorch, a client after another: what the other engines are tested against."""

    name: Literal["reference"] = "reference"

    def trainer(self, job: Job) -> Callable[[], Trainer]:
        """Return a trainer of single clients."""
        return partial(ClientTrainer, job, self.compute_device())

    def clients(self, job: Job, pool: Pool) -> Clients:
        """Return the clients one by one."""
        return _OneByOne(job, pool)


class LocalEngine(MachineEngine):
    """The same model, fast: clients are stacked where the network's layers and the method allow it."""

    name: Literal["local"] = "local"

    def trainer(self, job: Job) -> Callable[[], Trainer]:
        """Return a trainer of stacks, or of single clients where they can't be stacked."""
        return partial(StackTrainer, job) if self._stacks(job) else partial(ClientTrainer, job, self.compute_device())

    def clients(self, job: Job, pool: Pool) -> Clients:
        """Return the clients in stacks, or one by one."""
        return _Stacked(job, pool) if self._stacks(job) else _OneByOne(job, pool)

    def _stacks(self, job: Job) -> bool:
        return self.compute_device().type == "cpu" and can_stack(job)


class _OneByOne(Clients):
    def __init__(self, job: Job, pool: Pool) -> None:
        self._sizes = job.federation.offsets.diff()
        self._pool = pool

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        costs = [float(self._sizes[piece.client]) * piece.epochs * piece.share for piece in work]
        return self._pool.update(model, work, costs)


class _Stacked(Clients):
    def __init__(self, job: Job, pool: Pool) -> None:
        self._job = job
        self._pool = pool
        self._parameters = sum(p.numel() for p in job.initial_model().parameters())

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        pieces, costs = stacks(self._job, work, self._parameters)
        return self._pool.update(model, pieces, costs)
