"""What semi-supervised methods have in common that hold strong views to what the network says of weak ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from fedpu.method.base import Batch, Forward, Method
from fedpu.method.batches import proportioned_batches
from fedpu.risk import RiskConstants, Terms
from fedpu.round import Work


class Consistency(Method):
    """A loss on weak views of labelled data, and one on strong views of unlabelled data.

    Targets come from the network as it is at every step, without a gradient. They need no class priors.
    """

    uses_priors: ClassVar[bool] = False
    unlabelled_weight: float = Field(1.0, ge=0, description="weight of the loss on unlabelled data (λ_u)")
    unlabelled_ratio: float = Field(
        7.0, gt=0, description="unlabelled examples of a batch for each labelled one (μ), as far as whole numbers go"
    )
    target_view: Literal["weak", "clean"] = Field(
        "weak",
        description="what targets are made from: weak views, or the inputs as they are (one more pass through the "
        "network; not needed where augmentation.weak is empty)",
    )

    @property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        """The views that the settings ask for."""
        return ("weak", "strong") if self.target_view == "weak" else ("weak", "strong", "clean")

    def batches(
        self, labels: Int64[Tensor, " r"], work: Work, generator: Callable[[int], torch.Generator]
    ) -> list[Int64[Tensor, " _"]]:
        """Return batches in which labelled and unlabelled examples are 1 : μ."""
        return proportioned_batches(labels, work, generator, self.unlabelled_ratio)

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the loss on labelled and on unlabelled examples, each a mean over its own kind."""
        labelled, unlabelled = batch.labels >= 0, batch.labels < 0
        weak, strong = forward(batch.views["weak"]), forward(batch.views["strong"])
        seen = weak if self.target_view == "weak" else forward(batch.views["clean"])
        terms: Terms = {
            "labelled": self.labelled_loss(weak[labelled], batch.labels[labelled], batch.round),
            "unlabelled": self.unlabelled_weight * self.unlabelled_loss(seen[unlabelled].detach(), strong[unlabelled]),
        }
        return terms | {"total": terms["labelled"] + terms["unlabelled"]}

    def labelled_loss(
        self, logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"], round_: int
    ) -> Float[Tensor, ""]:
        """Return the cross-entropy of labelled examples."""
        return mean_where(cross_entropy(logits, labels), torch.ones_like(labels, dtype=torch.bool))

    @abstractmethod
    def unlabelled_loss(self, target_logits: Float[Tensor, "n C"], logits: Float[Tensor, "n C"]) -> Float[Tensor, ""]:
        """Return the loss of strong views, given the logits that targets are made from."""


def cross_entropy(logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return −log p of each label."""
    loss: Float[Tensor, " n"] = -logits.log_softmax(dim=1).gather(1, labels[:, None])[:, 0]
    return loss


def mean_where(losses: Float[Tensor, " n"], counted: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the mean of the losses that count; zero, with a gradient of zero, where none does."""
    mean: Float[Tensor, ""] = (losses * counted).sum() / counted.sum().clamp(min=1)
    return mean


def share_where(losses: Float[Tensor, " n"], counted: Bool[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the sum of the losses that count, over the number of all of them."""
    share: Float[Tensor, ""] = (losses * counted).sum() / max(1, len(losses))
    return share
