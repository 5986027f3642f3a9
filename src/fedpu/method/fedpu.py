"""FedPU, the paper's method."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor

from fedpu.labelling import ClassSummary
from fedpu.method.base import Batch, Forward
from fedpu.method.estimated import EstimatedRisk
from fedpu.registry import Registry
from fedpu.risk import (
    SURROGATES,
    Clamp,
    Lent,
    LinearForm,
    LinearRisk,
    RiskConstants,
    Terms,
    client_constants,
    fedpu_form,
    fedpu_risk,
    fedpu_table,
    released_older_risk,
    released_risk,
)

RELEASED = Registry("loss", {"released-code": released_risk, "released-code-older": released_older_risk})


class FedPU(EstimatedRisk):
    """Minimise ``equ:fedpurisk`` on labelled and unlabelled data."""

    name: Literal["fedpu"] = "fedpu"
    risk: ClassVar[str | None] = "equ:fedpurisk"
    surrogate: str = Field(
        "log",
        description="log | absolute (exact, learns slowly) | sigmoid | released-code | released-code-older (the "
        "authors' code), or your own as module:function",
    )
    clamp: Clamp = Field(
        "reverse", description="keep the estimated risk of hidden negatives above its bound: reverse | max | off"
    )
    lent: Lent = Field(
        "printed",
        description="the term lent by other clients: printed (the paper's) | shared (exact under overlap and for "
        "clients of any size) | off",
    )
    cross_entropy: float = Field(
        0.0, ge=0, description="weight of a plain cross-entropy on the labelled data beside the risk"
    )

    @field_validator("surrogate")
    @classmethod
    def _known(cls, value: str) -> str:
        if value in RELEASED:
            return value
        if value not in SURROGATES:
            allowed = ", ".join(repr(name) for name in (*SURROGATES, *RELEASED))
            raise ValueError(f"must be one of {allowed}, or your own as {SURROGATES.own}")
        SURROGATES[value]  # what can't be imported is reported here, and not by every client for itself
        return value

    @property
    def lends(self) -> bool:
        """Whether there is a lent term."""
        return self.lent != "off" and self.surrogate not in RELEASED

    @property
    def lends_by_size(self) -> bool:
        """The shared term is exact for the mean that the server forms; the printed one counts clients."""
        return self.lends and self.lent == "shared"

    def constants(self, summary: ClassSummary, co_negatives: Float[Tensor, "C C"], clients: int) -> RiskConstants:
        """Return the constants of the client's risk, with what it lends to the others."""
        return client_constants(summary, co_negatives, clients, self.lent, self.expectation)

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the terms of ``equ:fedpurisk`` in its trainable form, or of the released code's loss."""
        logits = forward(batch.inputs)
        if self.surrogate in RELEASED:
            return RELEASED[self.surrogate](logits, batch.labels, constants)
        return fedpu_risk(
            logits,
            batch.labels,
            constants,
            surrogate=self.surrogate,
            clamp=self.clamp,
            cross_entropy=self.cross_entropy,
        )

    def linear_form(self) -> LinearForm | None:
        """Return the form of the log surrogate; the others are differentiated automatically."""
        return fedpu_form(self.clamp, self.expectation, self.cross_entropy) if self.surrogate == "log" else None

    def table(self, constants: RiskConstants) -> LinearRisk:
        """Return the weights of ``equ:fedpurisk``."""
        return fedpu_table(constants)
