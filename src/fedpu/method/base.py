"""The contract of a method: what a client minimises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from fedpu.labelling import Facts
from fedpu.registry import Settings
from fedpu.risk import LinearForm, LinearRisk, Task, Terms

Forward = Callable[[Tensor], Tensor]
"""A network with its current parameters: inputs to logits."""


EXPECTATION: Any = Field(
    "unbiased",
    description="expectations over a class or over U in a batch: batch (mean of its members) | unbiased (sum over the "
    "number to be expected)",
)


class Method(Settings, ABC):
    """What a client minimises. It sees a client's data with hidden labels gone, and nothing of any other client."""

    fully_labelled: ClassVar[bool] = False
    """Is it trained on a federation in which everything is labelled?"""
    uses_unlabelled: ClassVar[bool] = True
    """Does it draw its batches from all data, or only from the labelled examples?"""
    needs_only_logits: ClassVar[bool] = True
    """Does its objective call ``forward`` once, on the batch as it is? Then an engine may compute the logits
    beforehand.
    """

    @property
    def lends(self) -> bool:
        """Does it use the sum of negative classes over all clients?"""
        return False

    @abstractmethod
    def task(self, facts: Facts, co_negatives: Float[Tensor, "C C"], clients: int) -> Task:
        """Return the constants of a client's risk, or of several clients' at once."""

    @abstractmethod
    def objective(
        self, forward: Forward, inputs: Float[Tensor, "n *shape"], labels: Int64[Tensor, " n"], task: Task
    ) -> Terms:
        """Return the terms of the loss of one batch; ``total`` is minimised, all are recorded."""

    def linear_form(self) -> LinearForm | None:
        """Return the form of the objective where it is linear in the two log surrogates, for an engine's fast path."""
        return None

    def table(self, task: Task) -> LinearRisk | None:
        """Return the weights that go with the form, where it has blocks."""
        return None
