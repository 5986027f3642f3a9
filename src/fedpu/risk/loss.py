"""The risk as a PyTorch loss for anybody's training loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast, get_args

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fedpu.errors import ConfigError, did_you_mean
from fedpu.risk.constants import Clamp, RiskConstants, Terms, plain_constants
from fedpu.risk.federated import fedpu_risk
from fedpu.risk.surrogates import SURROGATES


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
        clamp: str = "reverse",
        cross_entropy: float = 0.0,
    ) -> None:
        super().__init__()
        chosen = sorted(set(positive))
        if any(not 0 <= cls < classes for cls in chosen):
            raise ConfigError(f"positive = {chosen} names a class outside 0 … {classes - 1}.")
        if clamp not in get_args(Clamp):
            raise ConfigError(f"clamp = {clamp!r} is not known.{did_you_mean(str(clamp), get_args(Clamp))}")
        SURROGATES[surrogate]
        mask = torch.zeros(classes, dtype=torch.bool)
        mask[chosen] = True
        constants = plain_constants(mask, _shares("priors", priors, classes), lent)
        if unlabelled_priors is not None:
            constants = constants._replace(unlabelled_priors=_shares("unlabelled_priors", unlabelled_priors, classes))
        constants = constants._replace(unlabelled_share=torch.tensor(float(unlabelled_share)))
        for name, value in constants._asdict().items():
            self.register_buffer(name, value)
        self.surrogate, self.cross_entropy = surrogate, cross_entropy
        self.clamp = cast(Clamp, clamp)

    def terms(self, logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"]) -> Terms:
        """Return every term of the risk by name."""
        allowed = torch.cat([self.get_buffer("positive"), self.get_buffer("positive").new_ones(1)])
        if bool((labels < -1).any()) or bool((labels >= logits.shape[1]).any()) or not bool(allowed[labels].all()):
            raise ConfigError("labels must be −1 for unlabelled examples, or one of the positive classes.")
        buffers = (self.get_buffer(name) for name in RiskConstants._fields)
        constants = RiskConstants(
            *(buffer.to(logits.dtype) if buffer.is_floating_point() else buffer for buffer in buffers)
        )
        return fedpu_risk(
            logits, labels, constants, surrogate=self.surrogate, clamp=self.clamp, cross_entropy=self.cross_entropy
        )

    def forward(self, logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Return the risk to minimise."""
        return self.terms(logits, labels)["total"]


def _shares(what: str, values: Sequence[float] | Tensor | float, classes: int) -> Float[Tensor, " C"]:
    given = torch.as_tensor(values, dtype=torch.float32)
    if given.dim() > 1 or (given.dim() == 1 and len(given) != classes):
        raise ConfigError(f"{what} must be one number or one a class: {classes}; got {tuple(given.shape)}.")
    if bool((given < 0).any()) or bool((given > 1).any()):
        raise ConfigError(f"{what} must lie between 0 and 1; got {values}.")
    return given.expand(classes).clone()
