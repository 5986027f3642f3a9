"""Baseline-3: conventional PU learning, which takes all negative classes for one."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from fedpu.labelling import ClassSummary
from fedpu.method.base import Batch, Forward
from fedpu.method.estimated import EstimatedRisk
from fedpu.risk import Clamp, RiskConstants, Terms, client_constants, conventional_pu_risk


class ConventionalPU(EstimatedRisk):
    """Baseline-3: multi-positive nnPU on each client, with one grouped negative class."""

    name: Literal["conventional-pu"] = "conventional-pu"
    trained_on: ClassVar[str] = "negatives as one class (Baseline-3)"
    clamp: Clamp = Field(
        "reverse", description="keep the estimated risk of hidden negatives above its bound: reverse | max | off"
    )
    bounded: bool = Field(False, description="for conventional-pu: the loss 1 − p instead of −log p")

    def constants(self, summary: ClassSummary, co_negatives: Float[Tensor, "C C"], clients: int) -> RiskConstants:
        """Return the constants of the client's risk; nothing is lent."""
        return client_constants(summary, co_negatives, clients, "off", self.expectation)

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the terms of the multi-positive PU risk."""
        return conventional_pu_risk(
            forward(batch.inputs), batch.labels, constants, bounded=self.bounded, clamp=self.clamp
        )
