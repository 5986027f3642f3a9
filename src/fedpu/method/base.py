"""The contract of a method: what a client minimises, on which batches and views, and what it keeps between rounds.

A plain loss is a class with :meth:`Method.objective`; everything else has a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor

from fedpu.labelling import ClassSummary, Client
from fedpu.method.batches import shuffled_batches
from fedpu.registry import Choice
from fedpu.risk import LinearForm, LinearRisk, RiskConstants, Terms, client_constants, plain_constants
from fedpu.round import Broadcast, Tensors, Update, Work, overrides

Forward = Callable[[Tensor], Tensor]
"""A network with its current parameters: inputs to logits."""
Outputs = Callable[[], Float[Tensor, "r C"]]
"""Gives the logits of a model on all of a client's entries, without gradient, computed when first asked for."""
OutputsOf = Callable[[Tensors], Float[Tensor, "r C"]]
"""Gives the logits of any model, by its tensors, without gradient."""
Parts = dict[str, Tensors]
"""Trained parameters as a sum of parts, by the name of the part and of the parameter."""


PriorsOf = Literal["client", "federation", "guess", "estimate"]


@dataclass(frozen=True, eq=False)
class Batch:
    """One step's examples."""

    labels: Int64[Tensor, " n"]
    """−1 for unlabelled"""
    views: dict[str, Num[Tensor, "n *shape"]]
    """the inputs as :attr:`Method.views` asks for them"""
    examples: Tensors = field(default_factory=dict)
    """what :meth:`Method.prepare` has found for these examples, such as targets"""
    state: Tensors = field(default_factory=dict)
    """the client's state after :meth:`Method.prepare`"""
    round: int = 0
    part: str | None = None
    """the one of :attr:`Method.parts` that is moved now; None: the model as a whole"""
    parts: Parts = field(default_factory=dict)
    """where the model has parts: their parameters as they are now, for terms of the loss that are about them"""

    @property
    def inputs(self) -> Num[Tensor, "n *shape"]:
        """The first of the views; the only one, for most methods."""
        return next(iter(self.views.values()))


@dataclass(frozen=True, eq=False)
class ClientRound:
    """What a client knows when a round reaches it, before its first step."""

    client: Client
    """its data, hidden labels gone"""
    constants: RiskConstants
    round: int
    state: Tensors
    """what the method left with the client the last time; what :meth:`Method.start` gave, at first"""
    outputs: Outputs
    """of the model that the client starts from, on its own data as they are (a teacher)"""
    generator: Callable[[str], torch.Generator]
    """randomness for a purpose, of (seed, round, client)"""
    shared: Tensors = field(default_factory=dict)
    """the mean of what clients returned as ``shared`` in the round before; :meth:`Method.shares`, at first"""
    extras: Tensors = field(default_factory=dict)
    """what the server sent to this client alone"""
    priors_of: PriorsOf = "client"
    """whose class shares its priors are: its own, those of all clients together, what somebody takes these for, or an
    estimate of its own
    """
    model: Tensors = field(default_factory=dict)
    """what the client starts from"""
    outputs_of: OutputsOf | None = None
    """of any model of this network on the client's own data as they are, such as another client's"""


@dataclass(frozen=True, eq=False)
class Preparation:
    """What a method has made ready for an update, or has left after it."""

    examples: Tensors = field(default_factory=dict)
    """a row for each of the client's entries; a batch gets those of its examples"""
    state: Tensors | None = None
    """the client's new state, which stays with it; None: as it was"""
    shared: Tensors = field(default_factory=dict)
    """what goes to the server to be averaged with everybody's, under the names of :meth:`Method.shares`"""


class Method(Choice, ABC):
    """What a client minimises. It sees a client's data with hidden labels gone, and nothing of any other client."""

    name: str = ""
    fully_labelled: ClassVar[bool] = False
    """Is it trained on a federation in which everything is labelled?"""
    uses_unlabelled: ClassVar[bool] = True
    """Does it learn from all data, or only from the labelled examples?"""
    uses_priors: ClassVar[bool] = True
    """Does what it learns from unlabelled data depend on class priors?"""
    views: ClassVar[tuple[str, ...]] = ("weak",)
    """The views of a batch that it calls ``forward`` on: "clean" (the inputs as they are), "weak" or "strong" (as
    ``[augmentation]`` says; the inputs as they are where it says nothing).
    """
    trained_on: ClassVar[str] = "labelled and unlabelled data"
    """what tables say of it"""
    end_of_gap: ClassVar[Literal["lower", "upper"] | None] = None
    """Is it one of the methods between which the supervision gap lies? Of several lower ones the best counts."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Parts whose sum is the model: every step moves one after the other, each along the gradient of an objective of
    its own (:attr:`Batch.part`). All but the first are averaged like what clients share, under ``part.parameter``.
    """
    risk: ClassVar[str | None] = None
    """the paper's equation that it minimises, where it is one that bounds are known of"""

    def __init_subclass__(cls, **options: Any) -> None:
        """An objective that is written anew has not the fast form of the one that it replaces."""
        super().__init_subclass__(**options)
        for fast in ("linear_form", "stacked"):
            if "objective" in vars(cls) and fast not in vars(cls):
                setattr(cls, fast, getattr(Method, fast))

    @property
    def needs_priors(self) -> bool:
        """Must a client know or estimate its class priors?"""
        return self.uses_unlabelled and self.uses_priors

    @property
    def lends(self) -> bool:
        """Does it use the sum of negative classes over all clients?"""
        return False

    @property
    def lends_by_size(self) -> bool:
        """Does each client count with its number of examples in that sum? If not, all count alike."""
        return False

    def constants(self, summary: ClassSummary, co_negatives: Float[Tensor, "C C"], clients: int) -> RiskConstants:
        """Return the constants of a client's risk, or of several clients' at once.

        By default its positive classes and, for a method that needs them, its priors.
        """
        if self.needs_priors:
            return client_constants(summary, co_negatives, clients, "off", "batch")
        return plain_constants(summary.positive, torch.zeros(summary.positive.shape))

    @abstractmethod
    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the terms of the loss of one batch; ``total``, the sum of the others, is minimised, all are recorded.

        An engine has the network's outputs ready for the views of the batch. What is picked from them costs nothing:
        ``forward(batch.inputs)[batch.labels >= 0]``. Any other input, such as ``batch.inputs[batch.labels >= 0]`` or
        a mixture of two examples, is allowed and trains the clients one after another, which is slower.
        """

    def start(self, client: Client) -> Tensors:
        """Return the state of a client that takes part for the first time: tensors by name, of any shape."""
        return {}

    def shares(self, classes: int) -> Tensors:
        """Return what clients share besides the model, as it is before the first round.

        What :meth:`finish` returns under these names is averaged by the clients' numbers of examples.
        """
        return {}

    def first_shared(self, classes: int, parameters: Tensors) -> Tensors:
        """Return what is shared before the first round, where that depends on the network's first parameters too."""
        return self.shares(classes)

    def batches(
        self, labels: Int64[Tensor, " r"], work: Work, generator: Callable[[int], torch.Generator]
    ) -> list[Int64[Tensor, " _"]]:
        """Return the positions of every batch of an update; ``generator(epoch)`` is an epoch's randomness.

        :func:`~fedpu.method.shuffled_batches` and :func:`~fedpu.method.mixed_batches` draw them in the usual ways.
        """
        usable = torch.arange(len(labels)) if self.uses_unlabelled else (labels >= 0).nonzero()[:, 0]
        return shuffled_batches(usable, work, generator)

    @property
    def shuffles(self) -> bool:
        """Are batches all that it learns from in a random order, as they are unless a method draws its own?"""
        return not overrides(self, Method, "batches")

    def prepare(self, now: ClientRound) -> Preparation:
        """Return what an update needs besides its batches: once, before the first step."""
        return Preparation()

    def finish(self, now: ClientRound, before: Preparation, outputs: Outputs) -> Preparation:
        """Return the client's new state and what it shares; ``outputs`` are those of the model that it has trained.

        ``before`` is what :meth:`prepare` returned, its state filled in.
        """
        return before

    def returned(self, received: Parts, trained: Parts) -> Parts:
        """Return the parts that a client sends back, of those that it has trained."""
        return trained

    @property
    def serves(self) -> bool:
        """Does it do anything on the server? Then it is shown each client's update."""
        return any(overrides(self, Method, name) for name in ("ask", "remember"))

    def ask(self, memory: Tensors, sent: Broadcast, work: Sequence[Work]) -> list[Work]:
        """Return what each client is asked, with what is sent to it alone as its extras; this runs on the server."""
        return list(work)

    def remember(self, memory: Tensors, sent: Broadcast, work: Work, update: Update, on_noise: OutputsOf) -> Tensors:
        """Return what the server remembers after one more update; this is all that it remembers for a method.

        ``memory`` is what it remembered before, nothing at first. ``on_noise`` gives a model's logits on one image of
        noise, the same one for all models of a run: a server has no data.
        """
        return memory

    def report(self, memory: Tensors) -> dict[str, Any]:
        """Return what the record of a round says of the server's memory, as plain values."""
        return {}

    def stacked(
        self,
        logits: Float[Tensor, "*K n C"],
        labels: Int64[Tensor, "*K n"],
        examples: Tensors,
        constants: RiskConstants,
    ) -> Terms | None:
        """Return what :meth:`objective` does for the batches of K clients at once, one number per client and term.

        For an engine's fast path, with a method that has one view and whose objective needs the logits alone. Rows
        that only fill a shorter batch up have a label below −1 and must count for nothing.
        """
        return None

    def linear_form(self) -> LinearForm | None:
        """Return the form of the objective where it is linear in the two log surrogates, for an engine's fast path."""
        return None

    def table(self, constants: RiskConstants) -> LinearRisk | None:
        """Return the weights that go with the form, where it has blocks."""
        return None


def has_state(method: Method) -> bool:
    """Does a client keep or share anything for the method, or does it prepare its updates?"""
    return any(overrides(method, Method, name) for name in ("start", "shares", "prepare", "finish"))
