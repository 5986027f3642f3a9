"""FedMatch (Jeong et al. 2021, https://arxiv.org/abs/2006.12097), with labels at clients.

The model is a sum of two parts, θ = σ + ψ: σ learns from labelled data, ψ from unlabelled data. A step moves σ along
the gradient of the first line, ψ being fixed, then ψ along that of the second, σ being fixed:

    σ:  λ_s · mean over L of −log p_y(x)
    ψ:  mean over the sure x in U of [ λ_i · mean over helpers h of KL(p_h(x) ‖ p(x))  +  λ_a · (−log p_ŷ(s(x))) ]
        + λ_1 ‖ψ‖₁ + λ_2 ‖σ − ψ‖²

p are the posteriors of θ on images as they are and s(x) is a strong view. x is sure where max_j p_j(x) ≥ τ. ŷ is the
class that most of the client itself and its helpers take for the likeliest; without a majority it is the client's own.
Neither p_h nor ŷ has a gradient.

Helpers are other clients. In every tenth round the server sends a client the ψ of the two whose models are nearest to
its own, by their posteriors on one image of noise (a KD-tree over all clients that have returned an update); added to σ
as it was sent, each is a helper's model. A client that has not taken part yet has no neighbours and gets none; without
helpers there is no λ_i term, and the client votes alone. σ and ψ are averaged each.

**What travels.** An entry of ψ that is not larger than ``zero`` is one. Of σ and ψ only entries that differ by more
than ``change`` from what the other side has travel: a client sends what it has changed and leaves the rest as it was
sent, the server sends what has changed since the client's last update, and of a helper's ψ what is not zero there and
differs from the client's ψ. The record counts these values, four bytes each, without their places, as the paper does
(``bytes_sparse``). What this program sends are whole tensors (``bytes``).

λ_s = 10, λ_i = λ_a = 1e-2, λ_1 = 1e-4, λ_2 = 10, two helpers, every tenth round and ψ_0 = 0.2 σ_0 are the paper's, and
so is τ = .85, where its authors' code has .75. The thresholds of what travels are that code's. They fit its learning
rate of 1e-3: ψ is drawn to σ by 2 · lr · λ_2 of their distance in a step, which must stay well below 1.

Where we differ: the first θ is that of every other method, so that σ_0 = θ_0 / 1.2; means over clients are weighted by
their examples (clients of FedMatch have equally many); a tie of votes is the client's own, not the smallest class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from fedpu.method.base import Batch, ClientRound, Forward, Method, OutputsOf, Parts, Preparation
from fedpu.method.batches import proportioned_batches
from fedpu.method.consistency import cross_entropy, mean_where
from fedpu.risk import RiskConstants, Terms
from fedpu.round import Broadcast, Tensors, Update, Work, prefixed, under

SIGMA, PSI = "sigma", "psi"
HELPER = "helper"
VECTOR, COUNTED = "vector", "counted"
"""names in the server's memory: a client's posteriors on noise; round, bytes down and bytes up"""
BYTES = 4
"""of a value that travels"""


class FedMatch(Method):
    """Labels teach one part of the model; agreement between clients and strong views teach the other."""

    name: Literal["fedmatch"] = "fedmatch"
    uses_priors: ClassVar[bool] = False
    views: ClassVar[tuple[str, ...]] = ("clean", "strong")
    parts: ClassVar[tuple[str, ...]] = (SIGMA, PSI)
    trained_on: ClassVar[str] = "labelled data, and classes that clients agree on (FedMatch)"
    labelled_weight: float = Field(10.0, ge=0, description="for fedmatch: weight of the labelled loss (λ_s)")
    helper_weight: float = Field(1e-2, ge=0, description="for fedmatch: weight of agreement with helpers (λ_i)")
    vote_weight: float = Field(1e-2, ge=0, description="for fedmatch: weight of the loss on voted classes (λ_a)")
    sparsity: float = Field(1e-4, ge=0, description="for fedmatch: weight of ‖ψ‖₁ (λ_1)")
    closeness: float = Field(10.0, ge=0, description="for fedmatch: weight of ‖σ − ψ‖² (λ_2)")
    confidence: float = Field(
        0.85, ge=0, le=1, description="largest posterior from which an unlabelled example counts (τ; the code has .75)"
    )
    unlabelled_ratio: float = Field(
        10.0, gt=0, description="unlabelled examples of a batch for each labelled one, as far as whole numbers go"
    )
    helpers: int = Field(2, ge=0, le=100, description="for fedmatch: helpers of a client")
    helper_rounds: int = Field(10, ge=1, le=10**7, description="for fedmatch: helpers are sent every so many rounds")
    first_share: float = Field(0.2, ge=0, description="for fedmatch: ψ is this much of σ before the first round")
    zero: float = Field(5e-6, ge=0, description="for fedmatch: an entry of ψ up to this size is zero when it travels")
    change: float = Field(
        5e-5, ge=0, description="for fedmatch: an entry travels where it has changed by more than this"
    )

    def first_shared(self, classes: int, parameters: Tensors) -> Tensors:
        """Return ψ_0, such that σ_0 + ψ_0 are the network's first parameters."""
        share = self.first_share / (1 + self.first_share)
        return prefixed({PSI: {name: share * value for name, value in parameters.items()}})

    def batches(
        self, labels: Int64[Tensor, " r"], work: Work, generator: Callable[[int], torch.Generator]
    ) -> list[Int64[Tensor, " _"]]:
        """Return batches of labelled and unlabelled examples, as many as a pass over all data has."""
        return proportioned_batches(labels, work, generator, self.unlabelled_ratio)

    def prepare(self, now: ClientRound) -> Preparation:
        """Find what the helpers say of every example."""
        assert now.outputs_of is not None
        examples: Tensors = {}
        for helper in range(self.helpers):
            theirs = under(f"{HELPER}{helper}", now.extras)
            if theirs:
                own = under(PSI, now.shared)
                model = now.model | {name: now.model[name] - own[name] + value for name, value in theirs.items()}
                examples[f"{HELPER}{helper}"] = now.outputs_of(model).softmax(dim=1).float()
        return Preparation(examples)

    def objective(self, forward: Forward, batch: Batch, constants: RiskConstants) -> Terms:
        """Return the loss of the part that is moved now; of both, where there are no parts."""
        terms: Terms = {}
        if batch.part != PSI:
            terms |= self._of_sigma(forward, batch)
        if batch.part != SIGMA:
            terms |= self._of_psi(forward, batch)
        return terms | {"total": torch.stack(list(terms.values())).sum()}

    def _of_sigma(self, forward: Forward, batch: Batch) -> Terms:
        labelled = batch.labels >= 0
        if not bool(labelled.any()):
            return {"labelled": batch.inputs.new_zeros((), requires_grad=True)}
        losses = cross_entropy(forward(batch.views["clean"][labelled]), batch.labels[labelled])
        return {"labelled": self.labelled_weight * losses.mean()}

    def _of_psi(self, forward: Forward, batch: Batch) -> Terms:
        hidden = batch.labels < 0
        zero = batch.inputs.new_zeros((), requires_grad=True)
        terms: Terms = {"helpers": zero, "vote": zero}
        if bool(hidden.any()):
            helpers = [value[hidden] for value in batch.examples.values()]
            with torch.set_grad_enabled(bool(helpers) and torch.is_grad_enabled()):  # without helpers nothing needs it
                logits = forward(batch.views["clean"][hidden])
            p = logits.softmax(dim=1)
            sure = (p >= self.confidence).any(dim=1)
            terms["helpers"] = self.helper_weight * agreement(helpers, logits, sure)
            voted = vote(p.detach(), helpers)
            losses = cross_entropy(forward(batch.views["strong"][hidden]), voted)
            terms["vote"] = self.vote_weight * mean_where(losses, sure)
        if batch.parts:
            sigma, psi = batch.parts[SIGMA], batch.parts[PSI]
            terms["sparsity"] = self.sparsity * torch.stack([value.abs().sum() for value in psi.values()]).sum()
            apart = [(sigma[name].detach() - value).square().sum() for name, value in psi.items()]
            terms["closeness"] = self.closeness * torch.stack(apart).sum()
        return terms

    def returned(self, received: Parts, trained: Parts) -> Parts:
        """Return σ and ψ with small entries of ψ zero, and what has changed little as it was received."""
        thin = {name: without_small(value, self.zero) for name, value in trained[PSI].items()}
        return {
            part: {name: where_changed(value, received[part][name], self.change) for name, value in values.items()}
            for part, values in ((SIGMA, trained[SIGMA]), (PSI, thin))
        }

    def ask(self, memory: Tensors, sent: Broadcast, work: Sequence[Work]) -> list[Work]:
        """Send helpers in every tenth round, to those clients that have taken part before."""
        if not self.helpers or (sent.round + 1) % self.helper_rounds:
            return list(work)
        chosen = nearest(vectors_in(memory), self.helpers)
        shapes = under(PSI, sent.shared)

        def extras(client: int) -> Tensors:
            return prefixed(
                {
                    f"{HELPER}{place}": _unflattened(memory[f"{helper}.{PSI}"], shapes)
                    for place, helper in enumerate(chosen.get(client, []))
                }
            )

        return [replace(one, extras=one.extras | extras(one.client)) for one in work]

    def remember(self, memory: Tensors, sent: Broadcast, work: Work, update: Update, on_noise: OutputsOf) -> Tensors:
        """Remember a client's σ, ψ and posteriors on noise, and count what has travelled."""
        k = update.client
        theirs, mine = _flat_parts(sent.model, sent.shared), _flat_parts(update.model, update.shared)
        before = [memory.get(f"{k}.{part}") for part in (SIGMA, PSI)]
        down = sum(
            value.numel() if old is None else changed(value, old, self.change)
            for value, old in zip((theirs[0], without_small(theirs[1], self.zero)), before, strict=True)
        )
        own_psi = before[1]
        for place in range(self.helpers):
            helper = under(f"{HELPER}{place}", work.extras)
            if helper:
                assert own_psi is not None, "helpers are sent to clients that have taken part"
                down += helper_values(_flattened(helper), own_psi, self.zero, self.change)
        up = sum(changed(value, other, self.change) for value, other in zip(mine, theirs, strict=True))
        counted = memory.get(COUNTED)
        so_far = [0, 0] if counted is None or int(counted[0]) != sent.round else counted[1:].tolist()
        return memory | {
            f"{k}.{SIGMA}": mine[0],
            f"{k}.{PSI}": mine[1],
            f"{k}.{VECTOR}": on_noise(update.model).softmax(dim=-1).flatten(),
            COUNTED: torch.tensor([sent.round, so_far[0] + BYTES * down, so_far[1] + BYTES * up]),
        }

    def report(self, memory: Tensors) -> dict[str, Any]:
        """Return the bytes of the last round both ways, as the paper counts them."""
        if COUNTED not in memory:
            return {}
        _, down, up = memory[COUNTED].tolist()
        return {"bytes_sparse": {"down": down, "up": up}}


def agreement(
    helpers: Sequence[Float[Tensor, "n C"]], logits: Float[Tensor, "n C"], sure: Bool[Tensor, " n"]
) -> Float[Tensor, ""]:
    """Return the mean over sure examples and helpers of KL(p_h ‖ p); zero where there are no helpers."""
    own = logits.log_softmax(dim=1)
    if not helpers:
        return mean_where(0 * own.sum(dim=1), sure)
    divergences = [(q * (q.clamp(min=1e-12).log() - own)).sum(dim=1) for q in helpers]
    return mean_where(torch.stack(divergences).mean(dim=0), sure)


def vote(p: Float[Tensor, "n C"], helpers: Sequence[Float[Tensor, "n C"]]) -> Int64[Tensor, " n"]:
    """Return the class that most of the client and its helpers take for the likeliest; in a tie the client's own."""
    votes = [torch.nn.functional.one_hot(q.argmax(dim=1), p.shape[1]) for q in (p, *helpers)]
    winner: Int64[Tensor, " n"] = (2 * torch.stack(votes).sum(dim=0) + votes[0]).argmax(dim=1)
    return winner


def nearest(vectors: dict[int, Float[Tensor, " C"]], count: int) -> dict[int, list[int]]:
    """Return, for each client, the ``count`` other clients with the nearest vectors, the nearest first."""
    if len(vectors) < 2:
        return {}
    clients = sorted(vectors)
    points = torch.stack([vectors[k] for k in clients]).double().numpy()
    asked = min(count + 1, len(clients))
    from scipy.spatial import KDTree  # a quarter of a second that other methods need not wait

    _, found = KDTree(points).query(points, asked)
    return {
        k: [clients[place] for place in places if clients[place] != k][:count]
        for k, places in zip(clients, found.tolist(), strict=True)
    }


def vectors_in(memory: Tensors) -> dict[int, Float[Tensor, " C"]]:
    """Return the posteriors on noise of all clients that the server remembers."""
    ending = f".{VECTOR}"
    return {int(name.removesuffix(ending)): value for name, value in memory.items() if name.endswith(ending)}


def without_small(values: Tensor, zero: float) -> Tensor:
    """Return values with zeros in the place of those that are not larger."""
    return torch.where(values.abs() > zero, values, torch.zeros_like(values))


def where_changed(values: Tensor, before: Tensor, change: float) -> Tensor:
    """Return values where they have changed, and those before where they have not."""
    return torch.where((values - before).abs() > change, values, before)


def changed(values: Tensor, before: Tensor, change: float) -> int:
    """Return how many values have changed.

    Half the threshold separates those that have from those that were put back, whatever the rounding of σ = θ − ψ.
    """
    return int(((values - before).abs() > change / 2).sum())


def helper_values(helper: Tensor, own: Tensor, zero: float, change: float) -> int:
    """Return how many values of a helper's ψ travel: those that are not zero and not what the client has."""
    thin = without_small(helper, zero)
    return int(((thin != 0) & ((thin - without_small(own, zero)).abs() > change)).sum())


def _flat_parts(model: Tensors, shared: Tensors) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Return σ = θ − ψ and ψ, each as one vector."""
    psi = under(PSI, shared)
    flat = _flattened(psi)
    return _flattened({name: model[name] for name in psi}) - flat, flat


def _flattened(tensors: Tensors) -> Float[Tensor, " D"]:
    """Return tensors as one vector, in the order of their names: a file or a message keeps no other."""
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def _unflattened(values: Float[Tensor, " D"], like: Tensors) -> Tensors:
    """Return the tensors that a vector was made of, in the shapes of others."""
    names = sorted(like)
    pieces = values.split([like[name].numel() for name in names])
    return {name: piece.view(like[name].shape).clone() for name, piece in zip(names, pieces, strict=True)}
