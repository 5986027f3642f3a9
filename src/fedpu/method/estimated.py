"""Risks that are made of expectations over a class and over U, which a batch can only estimate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int64
from pydantic import Field, model_validator
from torch import Tensor

from fedpu.method.base import Method
from fedpu.method.batches import half_labelled_batches
from fedpu.risk import Expectation
from fedpu.round import Work, overrides


class EstimatedRisk(Method):
    """How a batch is drawn, and how expectations are formed in it."""

    expectation: Expectation = Field(
        "unbiased",
        description="expectations over a class or over U in a batch: batch (mean of its members) | unbiased (sum over "
        "the number to be expected)",
    )
    half_labelled: bool = Field(
        False,
        description="draw batches that are half labelled, with expectation = batch: of a few labels among many "
        "examples a batch has so few otherwise that every step is a gamble",
    )

    @model_validator(mode="after")
    def _mean_of_members(self) -> EstimatedRisk:
        if self.half_labelled and self.expectation != "batch":
            raise ValueError(
                'half_labelled = true needs expectation = "batch": the numbers to be expected are those of batches '
                "that are drawn from all examples alike"
            )
        return self

    def batches(
        self, labels: Int64[Tensor, " r"], work: Work, generator: Callable[[int], torch.Generator]
    ) -> list[Int64[Tensor, " _"]]:
        """Return all examples in a random order, or batches that are half labelled."""
        if self.half_labelled:
            return half_labelled_batches(labels, work, generator)
        return super().batches(labels, work, generator)

    @property
    def shuffles(self) -> bool:
        """Batches are drawn otherwise where they are half labelled."""
        return not self.half_labelled and not overrides(self, EstimatedRisk, "batches")
