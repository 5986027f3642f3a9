"""The contract of an engine: it runs the work that the server asks of clients, and hands their updates back in
order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.errors import TrainingError
from fedpu.labelling import Federation
from fedpu.method import Method
from fedpu.models import Model
from fedpu.priors import Priors
from fedpu.randomness import torch_seed
from fedpu.registry import Settings
from fedpu.risk import co_negatives

ModelState = dict[str, Tensor]
"""A network's parameters and buffers by name."""


def copy_state(network: nn.Module) -> ModelState:
    """Return a copy of a network's parameters and buffers, on the CPU and contiguous, as files hold them."""
    plain = torch.contiguous_format
    return {name: value.detach().cpu().clone(memory_format=plain) for name, value in network.state_dict().items()}


@dataclass(frozen=True)
class Work:
    """What the server asks of one client in one round."""

    client: int
    round: int
    lr: float
    epochs: int = 1
    batch_size: int | None = None
    """None: all data at once"""
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    """weight μ of FedProx's ½μ‖w − w_t‖²"""
    share: float = 1.0
    """the part of its steps that a straggler manages"""
    priors: tuple[float, ...] | None = None
    """the client's class priors as it knows them by now; None: those of the federation"""
    alone: bool = False
    """its update must come back by itself, not in a mean with others"""


@dataclass(frozen=True, eq=False)
class Update:
    """What a client returns: its parameters, its number of examples n_k, and the mean of each risk term.

    An engine may return several clients as one: their sum of examples, and their means weighted by it.
    """

    client: int
    examples: int
    model: ModelState
    terms: dict[str, float]
    clients: int = 1


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that client updates depend on besides the global model and the work asked for."""

    federation: Federation
    method: Method
    model: Model
    seed: int
    priors: Priors = field(default_factory=Priors)
    co_negatives: Float[Tensor, "C C"] | None = None
    """the sum of negative classes, where it was formed beforehand; None: as it comes from the federation"""

    def negative_classes(self) -> Float[Tensor, "C C"]:
        """Return Σ_q n_q n_qᵀ, by which clients lend."""
        return co_negatives(self.federation.positive) if self.co_negatives is None else self.co_negatives

    def initial_model(self) -> nn.Module:
        """Return the network with the initial weights of this seed."""
        return initial_model(
            self.model, tuple(self.federation.inputs.shape[1:]), len(self.federation.classes), self.seed
        )


def initial_model(model: Model, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """Return a network with the initial weights of a seed, leaving PyTorch's global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial weights"))
        return model.build(shape, classes)


class Clients(ABC):
    """The clients of a running engine."""

    @abstractmethod
    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        """Run ClientUpdate for each piece of work from the global ``model``; yield the updates in the order of
        ``work``.
        """

    def kept(self) -> ModelState:
        """Return what clients keep between rounds, for a checkpoint."""
        return {}

    def restore(self, kept: ModelState) -> None:
        """Put back what clients kept when a checkpoint was made."""
        if kept:
            raise TrainingError(f"The checkpoint holds what clients kept ({', '.join(kept)}); these clients keep none.")

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result, and why; nobody, in one process."""
        return {}


class Engine(Settings, ABC):
    """A way to run client updates. All engines give the same updates for the same job."""

    @abstractmethod
    def start(self, job: Job) -> AbstractContextManager[Clients]:
        """Make the clients ready; leaving the context stops them."""

    def compute_device(self) -> torch.device:
        """Return where evaluation runs."""
        return torch.device("cpu")
