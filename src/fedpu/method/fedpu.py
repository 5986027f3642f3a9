"""FedPU, the paper's method."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int64
from pydantic import Field, field_validator
from torch import Tensor

from fedpu.labelling import Facts
from fedpu.method.base import EXPECTATION, Forward, Method
from fedpu.registry import Registry
from fedpu.risk import (
    SURROGATES,
    Clamp,
    Expectation,
    Lent,
    LinearForm,
    LinearRisk,
    Task,
    Terms,
    client_task,
    fedpu_form,
    fedpu_risk,
    fedpu_table,
    released_older_risk,
    released_risk,
)

RELEASED = Registry("loss", {"released-code": released_risk, "released-code-older": released_older_risk})


class FedPU(Method):
    """Minimise ``equ:fedpurisk`` on labelled and unlabelled data."""

    name: Literal["fedpu"] = "fedpu"
    surrogate: str = Field(
        "log",
        description="log | absolute (exact, learns slowly) | sigmoid | released-code | released-code-older (the "
        "authors' code)",
    )
    clamp: Clamp = Field(
        "reverse", description="keep the estimated risk of hidden negatives above its bound: reverse | max | off"
    )
    lent: Lent = Field(
        "printed",
        description="the term lent by other clients: printed (the paper's) | shared (exact under overlap) | off",
    )
    expectation: Expectation = EXPECTATION
    cross_entropy: float = Field(
        0.0, ge=0, description="weight of a plain cross-entropy on the labelled data beside the risk"
    )

    @field_validator("surrogate")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in SURROGATES and value not in RELEASED:
            allowed = [*SURROGATES, *RELEASED]
            raise ValueError(f"must be one of {', '.join(repr(name) for name in allowed)}")
        return value

    @property
    def lends(self) -> bool:
        """Whether there is a lent term."""
        return self.lent != "off" and self.surrogate not in RELEASED

    def task(self, facts: Facts, co_negatives: Float[Tensor, "C C"], clients: int) -> Task:
        """Return the constants of the client's risk, with what it lends to the others."""
        return client_task(facts, co_negatives, clients, self.lent, self.expectation)

    def objective(
        self, forward: Forward, inputs: Float[Tensor, "n *shape"], labels: Int64[Tensor, " n"], task: Task
    ) -> Terms:
        """Return the terms of ``equ:fedpurisk`` in its trainable form, or of the released code's loss."""
        logits = forward(inputs)
        if self.surrogate in RELEASED:
            return RELEASED[self.surrogate](logits, labels, task)
        return fedpu_risk(
            logits, labels, task, surrogate=self.surrogate, clamp=self.clamp, cross_entropy=self.cross_entropy
        )

    def linear_form(self) -> LinearForm | None:
        """Return the form of the log surrogate; the others are differentiated automatically."""
        return fedpu_form(self.clamp, self.expectation, self.cross_entropy) if self.surrogate == "log" else None

    def table(self, task: Task) -> LinearRisk:
        """Return the weights of ``equ:fedpurisk``."""
        return fedpu_table(task)
