"""The two baselines that know only cross-entropy: on the labelled part (Baseline-1), and on everything (Baseline-2)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F

from fedpu.method.base import Batch, Forward, Method
from fedpu.risk import CROSS_ENTROPY_FORM, LinearForm, RiskConstants, Terms


class CrossEntropy(Method):
    """Mean cross-entropy of batches in which every example is labelled."""

    uses_unlabelled: ClassVar[bool] = False

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the cross-entropy as its only term."""
        loss = F.cross_entropy(forward(batch.inputs), batch.labels)
        return {"positive": loss, "total": loss}

    def linear_form(self) -> LinearForm:
        """Return the form of a plain mean."""
        return CROSS_ENTROPY_FORM


class PositiveOnly(CrossEntropy):
    """Baseline-1: cross-entropy on the labelled examples; the unlabelled ones are thrown away."""

    name: Literal["positive-only"] = "positive-only"
    trained_on: ClassVar[str] = "labelled data alone (Baseline-1)"
    end_of_gap: ClassVar[Literal["lower", "upper"] | None] = "lower"


class Supervised(CrossEntropy):
    """Baseline-2: cross-entropy on a federation in which every example is labelled."""

    name: Literal["supervised"] = "supervised"
    fully_labelled: ClassVar[bool] = True
    trained_on: ClassVar[str] = "every label known (Baseline-2)"
    end_of_gap: ClassVar[Literal["lower", "upper"] | None] = "upper"
