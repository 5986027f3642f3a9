"""Theorem 5 in a form that holds: the bound of ``equ:fedpurisk`` in every client and in all of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.errors import ConfigError
from fedpu.labelling import ClassSummary, Federation
from fedpu.risk import Lent, RiskConstants, client_constants, co_negatives
from fedpu.theory import printed
from fedpu.theory.concentration import Bound, Sample, bound, log_inverse, vc_constant


class Counts(NamedTuple):
    """What the bounds of K clients depend on besides δ and V."""

    summary: ClassSummary
    twice: bool
    """are labelled examples among the unlabelled ones, too?"""

    @property
    def examples(self) -> Int64[Tensor, " K"]:
        """How many different examples each client has."""
        summary = self.summary
        return summary.unlabelled if self.twice else summary.unlabelled + summary.labelled.sum(dim=-1)


class FederationBound(NamedTuple):
    """The bounds of all clients, with those that full supervision on the same examples would have."""

    fedpu: Bound
    """K × (C + 1): the labelled examples of every class, then the unlabelled ones"""
    supervised: Bound
    """of each client"""
    pooled: Bound
    """of the mean over all examples in one place"""
    v: float
    printed: Float[Tensor, " K"]
    """the order of Theorem 5 as printed, by client"""
    printed_supervised: Float[Tensor, " K"]
    printed_pooled: Float[Tensor, ""]

    @property
    def clients(self) -> Bound:
        """The bound of each client."""
        return self.fedpu.together()

    @property
    def all(self) -> Bound:
        """The bound of the sum over clients, ``equ:fedrisk``."""
        return self.clients.together()


def counts(federation: Federation) -> Counts:
    """Return what the bounds depend on, in a federation whose priors are known."""
    summary = federation.summary(torch.arange(len(federation)))
    return Counts(summary, len(federation.rows) > int(federation.sizes.sum()))


def theorem5(known: Counts, lent: Lent, delta: float, vc: int = 0) -> FederationBound:
    """``theorem5``, mended: how far Σ_k ``equ:fedpurisk`` on the data can be from its expectation.

    All examples enter one inequality, so that no union over the |P| + 1 samples of each client is needed. ``vc`` is
    the VC dimension of the sets {x : f(x) = m}; 0 is a classifier that is fixed before the data are drawn.
    """
    summary, examples, classes = known.summary, known.examples, known.summary.positive.shape[-1]
    v = vc_constant(vc, int(examples.sum()))
    sample = fedpu_sample(_constants(known, lent), summary, known.twice)
    return FederationBound(
        fedpu=bound(sample, delta, v),
        supervised=supervised(examples, classes, delta, v),
        pooled=supervised(examples.sum(), classes, delta, v),
        v=v,
        printed=printed.theorem5(summary.positive, summary.labelled, summary.unlabelled),
        printed_supervised=printed.supervised_order(examples, classes),
        printed_pooled=printed.supervised_order(examples.sum(), classes),
    )


def fedpu_sample(constants: RiskConstants, summary: ClassSummary, twice: bool) -> Sample:
    """Return what each example of K clients adds to ``equ:fedpurisk`` when it is decided for class d.

    A labelled example of class i adds π_i(−1[d = i] + a_id) / n_i, and for d ∈ N the weight of ``against-negative``
    over n_i; an unlabelled one subtracts 1/n_U for d ∈ N; one that is there ``twice`` does both.
    """
    p, labelled, unlabelled = constants.positive.double(), summary.labelled.double(), summary.unlabelled.double()
    n = 1 - p
    _refuse_nothing(constants, summary)
    own = -torch.diag_embed(constants.priors) + constants.priors[..., None] * constants.lent
    against = (constants.unlabelled_share[..., None] * constants.unlabelled_priors)[..., None] * n[..., None, :]
    of_labelled = p[..., None] * (own + against) / labelled.clamp(min=1)[..., None]
    of_unlabelled = -(constants.unlabelled_share / unlabelled.clamp(min=1))[..., None] * n
    if twice:
        of_labelled = of_labelled + of_unlabelled[..., None, :]
        unlabelled = (unlabelled - labelled.sum(dim=-1)).clamp(min=0)
    return Sample(
        counts=torch.cat([labelled, unlabelled[..., None]], dim=-1),
        weights=torch.cat([of_labelled, of_unlabelled[..., None, :]], dim=-2),
    )


def supervised(examples: Int64[Tensor, "*K"], classes: int, delta: float, v: float) -> Bound:
    """Return the bound of the misclassification rate when all n examples are labelled: 2V√(C/n) + √(log(1/δ) / 2n).

    Each class's examples have complexity V/√n_i and weight n_i/n; Σ_i √n_i / n ≤ √(C/n).
    """
    root = examples.double().rsqrt()
    return Bound(2 * v * classes**0.5 * root, (log_inverse(delta) / 2) ** 0.5 * root)


def scaled(known: Counts, labelled: float = 1.0, unlabelled: float = 1.0) -> Counts:
    """Return the counts with the labelled and the unlabelled ones multiplied; what is not zero stays at least one."""

    def times(count: Int64[Tensor, "*K"], factor: float) -> Int64[Tensor, "*K"]:
        return torch.where(count > 0, (count * factor).round().clamp(min=1).to(torch.int64), 0)

    summary = known.summary
    more, rest = times(summary.labelled, labelled), times(summary.unlabelled, unlabelled)
    return known._replace(summary=summary._replace(labelled=more, unlabelled=rest))


def possible(known: Counts) -> bool:
    """Can there be such clients, or have they labelled more of a class than its prior leaves?"""
    if known.summary.priors is None:
        return True
    return bool((known.summary.labelled <= known.summary.priors * known.examples[:, None] + 1).all())


def _constants(known: Counts, lent: Lent) -> RiskConstants:
    """Return the constants with which the clients are trained: the shared term counts clients by their sizes."""
    summary = known.summary
    exact = summary._replace(priors=None if summary.priors is None else summary.priors.double())
    total = co_negatives(summary.positive, known.examples if lent == "shared" else None)
    return client_constants(exact, total, len(summary.positive), lent, "batch")


def _refuse_nothing(constants: RiskConstants, summary: ClassSummary) -> None:
    for k, cls in (constants.positive & (summary.labelled == 0)).nonzero()[:1].tolist():
        raise ConfigError(f"Client {k} has no labelled example of its positive class {cls}: nothing bounds its risk.")
    lost = ~constants.positive.all(dim=1) & (constants.unlabelled_share > 0) & (summary.unlabelled == 0)
    for (k,) in lost.nonzero()[:1].tolist():
        raise ConfigError(f"Client {k} has negative classes but no unlabelled example: nothing bounds its risk.")
