"""The risk as a PyTorch loss for anybody's training loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fedpu.errors import ConfigError
from fedpu.risk.federated import fedpu_risk
from fedpu.risk.surrogates import SURROGATES
from fedpu.risk.task import Clamp, Task, Terms, plain_task


class FedPULoss(nn.Module):
    """``equ:fedpurisk`` of one client: ``loss(logits, labels)``, labels ``−1`` for unlabelled examples.

    ``positive`` are the classes that the client labels, ``priors`` the shares of all classes in its population, or
    one number for all. ``unlabelled_priors`` are the shares inside the unlabelled data where they differ (labelled
    examples taken out of them, which then are ``unlabelled_share`` of the population), ``lent`` the weights a_im of
    :func:`fedpu.risk.lent_weights`.
    """

    def __init__(
        self,
        positive: Iterable[int],
        priors: Sequence[float] | Tensor | float,
        classes: int,
        *,
        unlabelled_priors: Sequence[float] | Tensor | None = None,
        unlabelled_share: float = 1.0,
        lent: Float[Tensor, "C C"] | None = None,
        surrogate: str = "log",
        clamp: Clamp = "max",
        cross_entropy: float = 0.0,
    ) -> None:
        super().__init__()
        chosen = sorted(set(positive))
        if any(not 0 <= cls < classes for cls in chosen):
            raise ConfigError(f"positive = {chosen} names a class outside 0 … {classes - 1}.")
        SURROGATES[surrogate]
        mask = torch.zeros(classes, dtype=torch.bool)
        mask[chosen] = True
        task = plain_task(mask, torch.as_tensor(priors, dtype=torch.float32).expand(classes).clone(), lent)
        if unlabelled_priors is not None:
            inside = torch.as_tensor(unlabelled_priors, dtype=torch.float32)
            task = task._replace(unlabelled_priors=inside, unlabelled_share=torch.tensor(unlabelled_share))
        for name, value in task._asdict().items():
            self.register_buffer(name, value)
        self.surrogate, self.clamp, self.cross_entropy = surrogate, clamp, cross_entropy

    def terms(self, logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"]) -> Terms:
        """Return every term of the risk by name."""
        task = Task(*(self.get_buffer(name) for name in Task._fields))
        return fedpu_risk(
            logits, labels, task, surrogate=self.surrogate, clamp=self.clamp, cross_entropy=self.cross_entropy
        )

    def forward(self, logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Return the risk to minimise."""
        return self.terms(logits, labels)["total"]
