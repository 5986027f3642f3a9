"""The contract of an engine: it runs the work that the server asks of clients, and hands their updates back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.augmentation import Augmentation
from fedpu.engine.states import ClientStates
from fedpu.engine.validate import Expected
from fedpu.errors import TrainingError
from fedpu.labelling import Federation
from fedpu.method import Method, PriorsOf, has_state
from fedpu.models import Model
from fedpu.priors import Priors
from fedpu.randomness import torch_seed
from fedpu.registry import Choice
from fedpu.risk import co_negatives
from fedpu.round import Broadcast, ClientRule, Tensors, Update, Work, overrides


def copy_state(network: nn.Module) -> Tensors:
    """Return a copy of a network's parameters and buffers, on the CPU and contiguous, as files hold them."""
    plain = torch.contiguous_format
    return {name: value.detach().cpu().clone(memory_format=plain) for name, value in network.state_dict().items()}


def trained_parameters(network: nn.Module) -> Tensors:
    """Return a network's parameters without those that are frozen, by name."""
    return {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that client updates depend on besides what the server sends and asks."""

    federation: Federation
    method: Method
    model: Model
    seed: int
    priors: Priors = field(default_factory=Priors)
    rule: ClientRule = field(default_factory=ClientRule)
    """what the aggregation does on the client's side"""
    augmentation: Augmentation = field(default_factory=Augmentation)
    negatives: Float[Tensor, "C C"] | None = None
    """the sum of negative classes, where it was formed beforehand; None: as it comes from the federation"""
    clients: int | None = None
    """clients in all, where the federation holds some of them alone (a real node holds one); None: all are here"""

    @property
    def population(self) -> int:
        """The number of clients in all, K."""
        return len(self.federation) if self.clients is None else self.clients

    @property
    def estimates_priors(self) -> bool:
        """Do clients estimate their priors while they are trained?"""
        return self.priors.source == "estimated" and self.method.needs_priors

    @property
    def priors_of(self) -> PriorsOf:
        """Whose class shares the priors of a client are."""
        sources: dict[str, PriorsOf] = {
            "known": "client",
            "global": "federation",
            "given": "guess",
            "estimated": "estimate",
        }
        return sources[self.priors.source]

    @property
    def stateful(self) -> bool:
        """Is there anything that stays with a client, or that it prepares or ends an update with?"""
        return self.estimates_priors or has_state(self.method) or self.has_rule

    @property
    def has_rule(self) -> bool:
        """Has the aggregation a part on the client's side for which each client's own parameters are needed?"""
        return any(overrides(self.rule, ClientRule, name) for name in ("start_client", "end_client"))

    def co_negatives(self) -> Float[Tensor, "C C"]:
        """Return the sum of negative classes by which clients lend, each counted as the method asks for."""
        if self.negatives is not None:
            return self.negatives
        return co_negatives(self.federation.positive, self.federation.sizes if self.method.lends_by_size else None)

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


def expected_of(job: Job) -> Expected:
    """Return what a client of the job returns besides its model."""
    return expected_from(job.initial_model(), job.rule, job.method, len(job.federation.classes))


def expected_from(network: nn.Module, rule: ClientRule, method: Method, classes: int) -> Expected:
    """Return what a client returns besides its model, with such a network, rule and method."""
    parameters = trained_parameters(network)
    return Expected(rule.returns(parameters), method.first_shared(classes, parameters))


class Clients(ABC):
    """The clients of a running engine."""

    trusted: ClassVar[bool] = True
    """Are updates what this process has trained itself? Else each is screened before it is combined with others."""

    @abstractmethod
    def update(self, sent: Broadcast, work: Sequence[Work], each: bool = True) -> Iterator[Update]:
        """Run ClientUpdate for each piece of work; yield the updates in an order that follows from the work alone.

        Unless the aggregation needs ``each`` update by itself, an engine may yield means of several clients.
        """

    def name(self, client: int) -> str:
        """Return what the record calls a client."""
        return str(client)

    def states(self) -> ClientStates:
        """Return what stays with clients between rounds, for a checkpoint: those on real nodes keep it there."""
        return ClientStates()

    def restore(self, states: ClientStates) -> None:
        """Put back what stayed with clients when a checkpoint was made."""
        if states:
            raise TrainingError("The checkpoint holds states of clients; those of this engine keep their own.")

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result, and why; nobody, in one process."""
        return {}


class Engine(Choice, ABC):
    """A way to run client updates. All engines give the same updates for the same job."""

    name: str = ""

    @abstractmethod
    def start(self, job: Job) -> AbstractContextManager[Clients]:
        """Make the clients ready; leaving the context stops them."""

    def compute_device(self) -> torch.device:
        """Return where evaluation runs."""
        return torch.device("cpu")

    def slow_because(self, job: Job) -> str | None:
        """Say why the engine can't take its fast path with this job; nothing, where it does or has none."""
        return None
