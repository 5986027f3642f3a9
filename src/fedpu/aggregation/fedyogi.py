"""FedYogi (Reddi et al. 2021, https://arxiv.org/abs/2003.00295): Yogi (Zaheer et al. 2018) on the server."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedpu.aggregation.fedopt import ServerOptimiser


class FedYogi(ServerOptimiser):
    """The server's step with v⁺ = v − (1 − β₂) Δ² sign(v − Δ²), which forgets a large Δ more slowly than Adam does."""

    name: Literal["fedyogi"] = "fedyogi"

    def second_moment(self, before: Tensor, square: Tensor) -> Tensor:
        """Return v moved towards Δ² by a share of Δ² itself."""
        return before - (1 - self.beta_2) * square * torch.sign(before - square)
