"""Aligned targets: the received model labels what nobody has labelled, held to the class shares that a client knows.

After some rounds the global model knows every class, and every client knows how many examples of each class hide in its
unlabelled data U: their shares ρ there follow from its priors. With the logits z of the received model on U, offsets v
are found such that the mean over U of

    q(x) = softmax(z(x)/T + v)   is   ρ,

and q(x) is the target of x during this update. A model that has learned little gives even targets, which pull nowhere;
one that prefers a class is held to its share, which is what keeps targets of one's own making from collapsing into
that class. T below 1 sharpens what the model is sure of: a client takes the T under which its own labels are most
likely. It minimises

    mean over its labelled data of  −log p'_y(x)   +   mean over U of  −Σ_y q_y(x) log p'_y(x),    p' ∝ p · s/r,

with s = (λ + ρ)/2, λ the class shares among its labels, and r = min(π, 1/2C), π the class shares of all its data. Both
means together are the cross-entropy of one sample in which class y has the share s_y, and p' is what a model p of the
shares r says of such a sample. So what a client labels makes no difference to its minimiser: without s, one that labels
a single class would raise that class wherever it can't be told from another. r is even but for classes of which it has
less than half of an even share: a client that lacks a class learns from its data that they are not of that class, as
full supervision does, and one that has much of a class does not come to expect it everywhere. Half of a batch is
labelled, whatever the client's share of labels: a single labelled example that counts as much as all others of its
batch would make every step a gamble. There is no clamp. Targets are those of the inputs as they are and are learned
from strong views of them (``[augmentation]``), without which there is little to learn from a target that the model has
just given itself.

Where a client does not know its own shares, but only an estimate or the shares of all clients together, ρ is found
together with the targets. All clients share one offset b, that with which the mean prediction over everybody's U has
the federation's class shares, and a client's ρ is what an expectation-maximisation arrives at that takes its guess for
half as many examples as U has:

    ρ = (mean over U of softmax(z(x)/T + b + log ρ) + guess/2) / (1 + 1/2).

A model that prefers a class everywhere is corrected by b, which no client could tell from having much of that class.
Here r is even for all classes: a client that takes a class for missing, and is wrong, then learns nothing about it,
where it would otherwise learn that the class is never there.

Where a client's shares are estimated, T is 1: an estimate may take one class for another, and sharp targets would
confirm it. Shares that were given by hand may be wrong. They only bound the mean prediction: a class may have between
half and twice its given share before b corrects it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from fedpu.errors import ConfigError
from fedpu.labelling import UNLABELLED, ClassSummary
from fedpu.method.base import Batch, ClientRound, Forward, Method, Preparation
from fedpu.method.batches import half_labelled_batches
from fedpu.risk import RiskConstants, Terms, client_constants
from fedpu.round import Tensors, Work

STEPS, CLOSE = 50, 1e-4
"""of a search for offsets or shares: steps at most, and how near every class must be to its share before"""
LEAST = 1e-4
"""the smallest share of a class that is reckoned with"""
GUESSED = 0.5
"""what a guess of the shares counts for, beside U's examples"""
DOUBT = 2.0
"""the factor by which the share of a class that was given by hand may be wrong"""
TARGET, ADJUSTMENT = "target", "adjustment"
OFFSETS, PREDICTED, LABELLED = "offsets", "predicted", "labelled"
"""what clients share: the common offsets, the mean of their targets, and the share of their data that each class has
among labelled examples
"""


class Targets(NamedTuple):
    """What the received model says of U at one temperature."""

    offsets: Float[Tensor, " C"]
    shares: Float[Tensor, " C"]
    values: Float[Tensor, "n C"]


class Aligned(Method):
    """Cross-entropy on labelled data, and on unlabelled data towards aligned targets of the received model."""

    name: Literal["aligned"] = "aligned"
    views: ClassVar[tuple[str, ...]] = ("strong",)
    trained_on: ClassVar[str] = "labelled data, and aligned targets for the rest"
    temperatures: tuple[float, ...] = Field(
        (1.0, 0.7, 0.5),
        min_length=1,
        description="for aligned: what the received model's logits are divided by in targets; a client takes the one "
        "under which its own labels are most likely, and 1 where its class shares are estimated",
    )
    overall: tuple[float, ...] = Field(
        (),
        description="for aligned with estimated priors: class shares of all clients' data together, as far as they are "
        "known; [] takes them as even",
    )

    def constants(self, summary: ClassSummary, co_negatives: Float[Tensor, "C C"], clients: int) -> RiskConstants:
        """Return the shares inside U; nothing is lent."""
        return client_constants(summary, co_negatives, clients, "off", "batch")

    def batches(
        self, labels: Int64[Tensor, " r"], work: Work, generator: Callable[[int], torch.Generator]
    ) -> list[Int64[Tensor, " _"]]:
        """Return batches that are half labelled, as many as a pass over all data has."""
        return half_labelled_batches(labels, work, generator)

    def shares(self, classes: int) -> Tensors:
        """Return no offsets, and nothing predicted yet; refuse shares of another number of classes."""
        self._overall(classes)
        return {name: torch.zeros(classes) for name in (OFFSETS, PREDICTED, LABELLED)}

    def prepare(self, now: ClientRound) -> Preparation:
        """Find the targets of all unlabelled examples, and what everybody needs to know of them."""
        labels = now.client.labels
        unlabelled, labelled = labels < 0, labels >= 0
        classes = len(now.client.positive)
        counts = torch.bincount(labels[labelled], minlength=classes)
        taken = counts / len(labels) if now.client.scenario == "censored" else torch.zeros(classes)
        guess = _normalised(now.constants.unlabelled_priors.double())
        values, adjustment = torch.zeros(len(labels), classes), torch.zeros(len(labels), classes)
        shared = {name: now.shared[name].double() for name in self.shares(classes)}
        offsets = shared[OFFSETS] + self._correction(shared, now)
        predicted = guess
        values[labelled, labels[labelled]] = 1  # the target of a labelled example is its label
        if bool(unlabelled.any()):
            logits = now.outputs().double()
            tempers = (1.0,) if now.priors_of == "estimate" else self.temperatures
            tried = [
                aligned(logits[unlabelled] / t, guess)
                if now.priors_of == "client"
                else pooled(logits[unlabelled] / t, offsets, guess)
                for t in tempers
            ]
            likely = [
                _likelihood(logits[labelled] / t + one.offsets, labels[labelled])
                for t, one in zip(tempers, tried, strict=True)
            ]
            found = tried[likely.index(max(likely))]
            values[unlabelled] = found.values.float()
            adjustment[:] = _shown(counts, found.shares).log().float()
            if now.priors_of == "client":
                adjustment -= _rare(taken + (1 - taken.sum()) * found.shares).log().float()
            predicted = found.values.mean(dim=0)
        mine = {OFFSETS: offsets, PREDICTED: predicted, LABELLED: taken}
        return Preparation(
            {TARGET: values, ADJUSTMENT: adjustment}, shared={name: value.float() for name, value in mine.items()}
        )

    def _correction(self, shared: Tensors, now: ClientRound) -> Float[Tensor, " C"]:
        """Return what the common offsets lack for everybody's mean prediction to be, or be near, the federation's."""
        if not bool(shared[PREDICTED].any()):
            return torch.zeros_like(shared[PREDICTED])
        told = now.priors_of in ("federation", "guess")
        overall = now.constants.priors.double() if told else self._overall(len(shared[PREDICTED]))
        hidden, predicted = _normalised(_normalised(overall) - shared[LABELLED]), _normalised(shared[PREDICTED])
        if now.priors_of == "guess":
            hidden = _normalised(predicted.clamp(min=hidden / DOUBT, max=hidden * DOUBT))
        return (hidden / predicted).log()

    def _overall(self, classes: int) -> Float[Tensor, " C"]:
        """Return the federation's class shares, as far as they are known."""
        if self.overall and len(self.overall) != classes:
            raise ConfigError(f"method.overall has {len(self.overall)} shares, but there are {classes} classes.")
        return torch.tensor(self.overall or (1.0,) * classes, dtype=torch.float64)

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return both parts."""
        return self.stacked(forward(batch.inputs), batch.labels, batch.examples, constants)

    def stacked(
        self,
        logits: Float[Tensor, "*K n C"],
        labels: Int64[Tensor, "*K n"],
        examples: Tensors,
        constants: RiskConstants,
    ) -> Terms:
        """Return the means over the labelled and over the unlabelled examples of a batch."""
        known, hidden = labels >= 0, labels == UNLABELLED
        loss = -(examples[TARGET] * (logits + examples[ADJUSTMENT]).log_softmax(dim=-1)).sum(dim=-1)
        terms: Terms = {
            "labelled": (loss * known).sum(dim=-1) / known.sum(dim=-1).clamp(min=1),
            "targets": (loss * hidden).sum(dim=-1) / hidden.sum(dim=-1).clamp(min=1),
        }
        return terms | {"total": terms["labelled"] + terms["targets"]}


def aligned(logits: Float[Tensor, "n C"], shares: Float[Tensor, " C"]) -> Targets:
    """Return softmax(logits + v) with the v for which its mean over the rows is ``shares``.

    v minimises the convex mean log Σ exp(logits + v) − shares · v, whose gradient is the mean minus the shares:
    Newton's steps, or a multiplicative one where such a step does not lead down.
    """
    columns = logits.T.contiguous()  # a class's logits side by side: the sums below are several times faster
    offsets = torch.zeros_like(shares)
    height, values = _tilted(columns, offsets, shares)
    for _ in range(STEPS):
        mean = values.mean(dim=1)
        gap = shares - mean
        if float(gap.abs().max()) < CLOSE:
            break
        # The curvature is zero along (1, …, 1), which moves no probability; the last term makes it invertible.
        curvature = mean.diag() - values @ values.T / len(logits) + 1 / len(mean) + 1e-9 * torch.eye(len(mean))
        step = torch.linalg.solve(curvature, gap)
        lower, after = _tilted(columns, offsets + step, shares)
        if not lower < height:
            step = (shares / mean.clamp(min=1e-30)).log()
            lower, after = _tilted(columns, offsets + step, shares)
        offsets, height, values = offsets + step, lower, after
    return Targets(offsets, shares, values.T)


def pooled(logits: Float[Tensor, "n C"], offsets: Float[Tensor, " C"], guess: Float[Tensor, " C"]) -> Targets:
    """Return softmax(logits + offsets + log ρ) with the ρ that it confirms, a guess counting half as much as U."""
    columns = logits.T.contiguous() + offsets[:, None]
    shares = guess
    values = (columns + shares.log()[:, None]).softmax(dim=0)
    for _ in range(STEPS):
        before, shares = shares, (values.mean(dim=1) + GUESSED * guess) / (1 + GUESSED)
        values = (columns + shares.log()[:, None]).softmax(dim=0)
        if float((shares - before).abs().max()) < CLOSE:
            break
    return Targets(offsets + shares.log(), shares, values.T)


def _shown(labelled: Int64[Tensor, " C"], hidden: Float[Tensor, " C"]) -> Float[Tensor, " C"]:
    """Return s, the class shares of labelled and unlabelled data where each of the two counts as one half."""
    total = labelled.sum()
    return (labelled / total + hidden) / 2 if total > 0 else hidden


def _rare(shares: Float[Tensor, " C"]) -> Float[Tensor, " C"]:
    """Return 2C r: 1 for a class that has at least half of an even share, and less for one that has less."""
    return (2 * len(shares) * shares).clamp(max=1)


def _tilted(
    logits: Float[Tensor, "C n"], offsets: Float[Tensor, " C"], shares: Float[Tensor, " C"]
) -> tuple[float, Float[Tensor, "C n"]]:
    """Return mean log Σ exp(logits + offsets) − shares · offsets, and softmax(logits + offsets)."""
    tilted = logits + offsets[:, None]
    highest = tilted.amax(dim=0)
    values = tilted.sub_(highest).exp_()
    sums = values.sum(dim=0)
    return float((sums.log() + highest).mean() - shares @ offsets), values.div_(sums)


def _likelihood(logits: Float[Tensor, "n C"], labels: Int64[Tensor, " n"]) -> float:
    """Return the mean log probability of the labels; the same for all where there are none."""
    return float(logits.log_softmax(dim=1).gather(1, labels[:, None]).mean()) if len(labels) else 0.0


def _normalised(shares: Float[Tensor, " C"]) -> Float[Tensor, " C"]:
    some = shares.clamp(min=LEAST)
    normal: Float[Tensor, " C"] = some / some.sum()
    return normal
