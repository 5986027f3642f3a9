"""Class priors inside the unlabelled data, in both sampling scenarios."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.labelling import Scenario


def unlabelled_priors(
    priors: Float[Tensor, "*K C"],
    labelled: Int64[Tensor, "*K C"],
    unlabelled: Int64[Tensor, "*K"],
    scenario: Scenario,
) -> tuple[Float[Tensor, "*K C"], Float[Tensor, "*K"]]:
    """Return the priors inside U, and the weight with which an expectation over U enters a risk of the whole
    population.

    ``case-control``: U is a sample of the population, so the priors are π and the weight is 1. ``censored``: the
    labelled examples were taken out of U. With c the labelled fractions the priors inside U are π_i(1−c_i) / (1−Σ_j
    π_j c_j), and U is the share 1−Σ_j π_j c_j of the population; counts give both without c: π_i c_i = n_i / n.
    """
    if scenario == "case-control":
        return priors, priors.new_ones(unlabelled.shape)
    total = (labelled.sum(dim=-1) + unlabelled).clamp(min=1).to(priors.dtype)
    share = unlabelled.to(priors.dtype) / total
    # Priors that were guessed too low could leave less than nothing in U; and U may be empty.
    left = (priors - labelled.to(priors.dtype) / total[..., None]).clamp(min=0)
    inside = torch.where(share[..., None] > 0, left / share[..., None].clamp(min=1e-12), 0)
    return inside, share


def priors_of_no_knowledge(
    labelled: Int64[Tensor, "K C"], unlabelled: Int64[Tensor, " K"], scenario: Scenario
) -> Float[Tensor, "K C"]:
    """Return the priors of somebody who takes all classes as even inside the unlabelled data.

    Even shares of the whole population would be worse than ignorant where examples were labelled out of it: a class
    with a tenth of the data labelled would have nothing left in U, and a model that is told so never finds it there.
    """
    even = torch.full(labelled.shape, 1 / labelled.shape[1])
    if scenario == "case-control":
        return even
    total = (labelled.sum(dim=1) + unlabelled).clamp(min=1)[:, None]
    return (labelled + even * unlabelled[:, None]) / total
