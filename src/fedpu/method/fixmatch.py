"""FixMatch (Sohn et al. 2020), on each client: the class that the network is sure of is the label of a strong view.

With the network's posteriors p at this step, a batch of labelled examples L and unlabelled ones U, and a weak and a
strong view w(x), s(x) of each example, a client minimises

    mean over L of −log p_y(w(x))   +   λ_u · mean over U of 1[max_j p_j(w(x)) ≥ τ] · (−log p_ŷ(s(x))),

    ŷ = argmax_j p_j(w(x)).

Neither ŷ nor the indicator has a gradient. The second mean is over all of U, sure or not, so that it grows as the
network becomes sure of more. λ_u = 1, τ = .95 and seven unlabelled examples for each labelled one are the paper's.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from fedpu.method.consistency import Consistency, cross_entropy, share_where


class FixMatch(Consistency):
    """Cross-entropy on labelled data, and on strong views of what the network is sure of in weak ones."""

    name: Literal["fixmatch"] = "fixmatch"
    trained_on: ClassVar[str] = "labelled data, and classes that the network is sure of (FixMatch)"
    confidence: float = Field(
        0.95, ge=0, le=1, description="largest posterior from which an unlabelled example counts (τ)"
    )

    def unlabelled_loss(self, target_logits: Float[Tensor, "n C"], logits: Float[Tensor, "n C"]) -> Float[Tensor, ""]:
        """Return the cross-entropy of the likeliest classes, where the network is sure of them."""
        largest, guessed = target_logits.softmax(dim=1).max(dim=1)
        return share_where(cross_entropy(logits, guessed), largest >= self.confidence)
