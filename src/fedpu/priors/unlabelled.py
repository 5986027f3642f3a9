"""Class priors inside the unlabelled data, in both sampling scenarios."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.labelling import Scenario


def unlabelled_priors(
    priors: Float[Tensor, " C"],
    labelled_counts: Int64[Tensor, " C"],
    unlabelled_count: int,
    scenario: Scenario,
) -> tuple[Float[Tensor, " C"], Float[Tensor, ""]]:
    """Return the priors inside U, and the weight with which an expectation over U enters a risk of the whole
    population.

    ``case-control``: U is a sample of the population, so the priors are π and the weight is 1. ``censored``: the
    labelled examples were taken out of U. With c the labelled fractions the priors inside U are π_i(1−c_i) / (1−Σ_j
    π_j c_j), and U is the share 1−Σ_j π_j c_j of the population; counts give both without c: π_i c_i = n_i / n.
    """
    if scenario == "case-control":
        return priors, torch.ones(())
    total = int(labelled_counts.sum()) + unlabelled_count
    if unlabelled_count == 0:
        return torch.zeros_like(priors), torch.zeros(())
    share = unlabelled_count / total
    # Priors that were guessed too low could leave less than nothing in U.
    inside = (priors - labelled_counts.to(priors.dtype) / total).clamp(min=0) / share
    return inside, torch.tensor(share, dtype=priors.dtype)
