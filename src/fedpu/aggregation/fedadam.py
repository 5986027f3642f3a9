"""FedAdam (Reddi et al. 2021, https://arxiv.org/abs/2003.00295): Adam on the server."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from fedpu.aggregation.fedopt import ServerOptimiser


class FedAdam(ServerOptimiser):
    """The server's step with v⁺ = β₂ v + (1 − β₂) Δ²."""

    name: Literal["fedadam"] = "fedadam"

    def second_moment(self, before: Tensor, square: Tensor) -> Tensor:
        """Return the moving average of Δ²."""
        return self.beta_2 * before + (1 - self.beta_2) * square
