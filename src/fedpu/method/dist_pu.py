"""Dist-PU's mean matching (Zhao et al. 2022, https://arxiv.org/abs/2212.02801), for several positive classes.

The mean prediction on data whose class shares are known has to have these shares. With L_i the labelled examples of
class i in a batch, U the unlabelled ones, π the class priors and ρ those inside U, a client minimises

    Σ over classes i in the batch of 2 π_i |1 − mean over L_i of p_i|   +   ½ Σ_j |mean over U of p_j − ρ_j|
    + μ · mean over U of the entropy of p.

With two classes and one of them positive this is the paper's label distribution loss,
2 π |E_P p − 1| + |E_U p − π|: the two classes have the same distance, and half of their sum is one of them. μ = 2e-3
is its authors'. Their second stage, mixtures of examples towards targets of the network's own, is left out: it is a
method of its own on top of what is matched here.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from fedpu.method.base import Batch, Forward, Method
from fedpu.risk import RiskConstants, Terms


class DistPU(Method):
    """Mean predictions matched to class shares, on labelled and on unlabelled data."""

    name: Literal["dist-pu"] = "dist-pu"
    trained_on: ClassVar[str] = "labelled data, and class shares of the rest (Dist-PU)"
    entropy: float = Field(2e-3, ge=0, description="for dist-pu: weight of the entropy on unlabelled data (μ)")

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the distances of labelled and of unlabelled data from their shares, and the entropy."""
        logits = forward(batch.inputs)
        p, hidden = logits.softmax(dim=1), batch.labels < 0
        terms: Terms = {"labelled": self.labelled_distance(p[~hidden], batch.labels[~hidden], constants)}
        terms["unlabelled"] = terms["entropy"] = 0 * logits.sum()
        if bool(hidden.any()):
            distances = (p[hidden].mean(dim=0) - constants.unlabelled_priors).abs()
            terms["unlabelled"] = distances.sum() / 2
            entropies = -(p[hidden] * logits[hidden].log_softmax(dim=1)).sum(dim=1)
            terms["entropy"] = self.entropy * entropies.mean()
        return terms | {"total": terms["labelled"] + terms["unlabelled"] + terms["entropy"]}

    def labelled_distance(
        self, p: Float[Tensor, "n C"], labels: Int64[Tensor, " n"], constants: RiskConstants
    ) -> Float[Tensor, ""]:
        """Return Σ_i 2 π_i |1 − mean over L_i of p_i|."""
        classes = p.shape[1]
        chosen = torch.nn.functional.one_hot(labels, classes).to(p.dtype)
        counts = chosen.sum(dim=0)
        means = (p * chosen).sum(dim=0) / counts.clamp(min=1)
        distance: Float[Tensor, ""] = (2 * constants.priors * (1 - means) * (counts > 0)).sum()
        return distance
