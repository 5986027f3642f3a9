"""Baseline-3: conventional PU learning, which takes all negative classes for one."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from fedpu.labelling import Facts
from fedpu.method.base import EXPECTATION, Forward, Method
from fedpu.risk import Clamp, Expectation, Task, Terms, client_task, conventional_pu_risk


class ConventionalPU(Method):
    """Baseline-3: multi-positive nnPU on each client, with one grouped negative class."""

    name: Literal["conventional-pu"] = "conventional-pu"
    clamp: Clamp = Field(
        "reverse", description="keep the estimated risk of hidden negatives above its bound: reverse | max | off"
    )
    expectation: Expectation = EXPECTATION
    bounded: bool = Field(False, description="for conventional-pu: the loss 1 − p instead of −log p")

    def task(self, facts: Facts, co_negatives: Float[Tensor, "C C"], clients: int) -> Task:
        """Return the constants of the client's risk; nothing is lent."""
        return client_task(facts, co_negatives, clients, "off", self.expectation)

    def objective(
        self, forward: Forward, inputs: Float[Tensor, "n *shape"], labels: Int64[Tensor, " n"], task: Task
    ) -> Terms:
        """Return the terms of the multi-positive PU risk."""
        return conventional_pu_risk(forward(inputs), labels, task, bounded=self.bounded, clamp=self.clamp)
