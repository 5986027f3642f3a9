"""The two baselines that know only cross-entropy: on the labelled part (Baseline-1), and on everything (Baseline-2)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.labelling import Facts
from fedpu.method.base import Forward, Method
from fedpu.risk import CROSS_ENTROPY_FORM, LinearForm, Task, Terms, plain_task


class CrossEntropy(Method):
    """Mean cross-entropy of batches in which every example is labelled."""

    uses_unlabelled: ClassVar[bool] = False

    def task(self, facts: Facts, co_negatives: Float[Tensor, "C C"], clients: int) -> Task:
        """Return constants without priors: cross-entropy needs none, and a client may not know them."""
        return plain_task(facts.positive, torch.zeros(facts.positive.shape))

    def objective(
        self, forward: Forward, inputs: Float[Tensor, "n *shape"], labels: Int64[Tensor, " n"], task: Task
    ) -> Terms:
        """Return the cross-entropy as its only term."""
        loss = F.cross_entropy(forward(inputs), labels)
        return {"positive": loss, "total": loss}

    def linear_form(self) -> LinearForm:
        """Return the form of a plain mean."""
        return CROSS_ENTROPY_FORM


class PositiveOnly(CrossEntropy):
    """Baseline-1: cross-entropy on the labelled examples; the unlabelled ones are thrown away."""

    name: Literal["positive-only"] = "positive-only"


class Supervised(CrossEntropy):
    """Baseline-2: cross-entropy on a federation in which every example is labelled."""

    name: Literal["supervised"] = "supervised"
    fully_labelled: ClassVar[bool] = True
