"""The score that needs no hidden label: the observable likelihood on what every client holds out of its own data.

A model may be sharper or blunter than its accuracy deserves, so that it is scored at the temperature that suits it
best: logits are divided by each of a fixed grid of temperatures, and the least of the federation's losses counts.

Clients compute it for themselves. What each of them tells is a few sums (:func:`tallies`), so that a server that forms
sums securely learns the score of the federation and of no client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fedpu.engine import predict
from fedpu.labelling import ClassSummary, Federation
from fedpu.risk import client_posterior, consistent_priors, labelled_odds, observable_loss

EXAMPLES, RIGHT, LABELLED = range(3)
"""the first columns of :func:`tallies`; a sum of losses at each temperature follows"""
TEMPERATURES = tuple(2 ** (quarter / 4) for quarter in range(-8, 17))
"""from a quarter to 16: what logits are divided by before they are scored"""


@dataclass(frozen=True)
class Validation:
    """What the held-out data say of a model."""

    score: float
    """mean of −log P(what was observed) over all held-out entries, at the best temperature; lower is better"""
    temperature: float
    """the best one: above 1 where the model is too sure of itself"""
    as_trained: float
    """the same mean at temperature 1"""
    labelled_accuracy: float | None
    """accuracy on the labelled ones alone; None where none is held out"""

    def to_dict(self) -> dict[str, float | None]:
        """Return it as the record has it."""
        return {
            "validation": self.score,
            "validation_temperature": self.temperature,
            "validation_as_trained": self.as_trained,
            "validation_accuracy": self.labelled_accuracy,
        }


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The held-out data of all clients, and what each client knows of all of its data."""

    federation: Federation
    """the held-out examples alone"""
    summary: ClassSummary
    """of all data of each client: counts of labels, and priors"""
    sizes: Int64[Tensor, " K"]
    """how many examples each client has in all"""

    def __len__(self) -> int:
        return len(self.federation.inputs)


def tallies(
    network: nn.Module, held_out: HeldOut, device: torch.device, priors: Mapping[int, Float[Tensor, " C"]] | None = None
) -> Float[Tensor, "K _"]:
    """Return what each client tells of a model: how many entries it holds out, how many of its labelled ones are right,
    of how many, and the sum of its losses at each of the temperatures.

    ``priors`` are those that some clients have estimated by now. The class shares of the model are taken to be the
    federation's: the mean of the clients', by their numbers of examples, which is one more sum.
    """
    federation, summary = held_out.federation, held_out.summary
    if priors:
        assert summary.priors is not None
        now = summary.priors.clone()
        for k, own in priors.items():
            now[k] = own.to(now.dtype)
        summary = summary._replace(priors=now)
    shares = consistent_priors(summary)
    sizes = held_out.sizes.double()
    model_priors = (sizes / sizes.sum()) @ shares
    odds = labelled_odds(summary, shares)
    logits = predict(network, federation.inputs, federation.normalisation, device)[federation.rows]
    owner, labels = federation.owner, federation.labels
    labelled = labels >= 0
    right = labelled & (logits.argmax(dim=1) == labels)
    told = [torch.ones(len(labels)), right, labelled]
    for temperature in TEMPERATURES:
        posterior = client_posterior(logits / temperature, shares[owner], model_priors)
        told.append(observable_loss(posterior, labels, odds[owner], summary.scenario))
    columns = torch.stack([column.double() for column in told], dim=1)
    return torch.zeros(len(federation), len(told), dtype=torch.float64).index_add_(0, owner, columns)


def validation_of(told: Float[Tensor, "K _"]) -> Validation:
    """Return the score of the federation, from the sum of what its clients tell."""
    examples, right, labelled, *losses = told.sum(dim=0).tolist()
    best = min(range(len(losses)), key=losses.__getitem__)
    return Validation(
        score=losses[best] / examples,
        temperature=TEMPERATURES[best],
        as_trained=losses[TEMPERATURES.index(1)] / examples,
        labelled_accuracy=right / labelled if labelled else None,
    )
