"""What robust aggregations share: updates as vectors, in an order of their own, and averaged in buckets if asked for.

The vector of client k is δ_k = w_k − w_t, over everything that is not a whole number: a running mean of BatchNorm's can
carry a lie as well as a parameter can. Counters are whole numbers and take their median.

*Bucketing* (Karimireddy et al. 2022, https://arxiv.org/abs/2006.09365): clients that differ honestly look like liars to
a rule that trusts the majority. Means of a few of them, drawn anew in every round, differ less; a bucket with a liar in
it is lost, so that fewer liars can be borne.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from fedpu.aggregation.base import Aggregation, ServerState
from fedpu.errors import TrainingError
from fedpu.randomness import numpy_generator
from fedpu.round import Tensors, Update


class Changes(NamedTuple):
    """What the clients of a round, or buckets of them, have changed."""

    vectors: Float[Tensor, "m d"]
    shares: Float[Tensor, " m"]
    """n_k/n"""
    clients: list[list[int]]
    """who is in each row: one client, or those of a bucket"""


class Verdict(NamedTuple):
    """What a rule makes of them."""

    change: Float[Tensor, " d"]
    told: dict[int, str]
    """by row: what became of an update that was not taken as it is"""
    extras: Tensors
    """what the server keeps"""
    counted: Float[Tensor, " m"]
    """by row: the part of its share of examples that it had in the change; 0: none, 1: all of it, or more"""


class Robust(Aggregation):
    """FedAvg's clients, and a server that does not take every update at its word."""

    judges: ClassVar[bool] = True

    @abstractmethod
    def judge(self, state: ServerState, changes: Changes) -> Verdict:
        """Return one change for all."""

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Move the model by what the rule makes of the clients' changes."""
        ordered = sorted(updates, key=lambda update: update.client)
        if not ordered:
            raise TrainingError("No client returned an update in this round.")
        verdict = self.judge(state, changes := self.changes(state, ordered))
        told = {k: verdict.told[row] for row, group in enumerate(changes.clients) if row in verdict.told for k in group}
        after = state.after(moved(state.model, verdict.change, ordered), **verdict.extras)
        parts = verdict.counted.clamp(0, 1).tolist()
        counted = {k: part for part, group in zip(parts, changes.clients, strict=True) if part < 1 for k in group}
        return replace(after, judged=told, counted=counted)

    def changes(self, state: ServerState, ordered: list[Update]) -> Changes:
        """Return what the rule is to look at."""
        vectors = torch.stack([flat(update.model, state.model) for update in ordered])
        examples = torch.tensor([float(update.examples) for update in ordered], dtype=torch.float64)
        return Changes(vectors, examples / examples.sum(), [[update.client] for update in ordered])


class Bucketed(Robust):
    """A rule that knows clients by their updates alone, and can look at means of several of them as well."""

    bucket: int = Field(
        1,
        ge=1,
        le=10**6,
        description="for robust aggregations: updates are averaged in groups of so many, drawn anew in every round, "
        "before the rule looks at them",
    )

    def changes(self, state: ServerState, ordered: list[Update]) -> Changes:
        """Return the means of buckets, weighted by examples."""
        single = super().changes(state, ordered)
        if self.bucket == 1:
            return single
        order = torch.from_numpy(numpy_generator(0, "buckets", state.round).permutation(len(ordered)))
        groups = order.split(self.bucket)
        shares = torch.stack([single.shares[group].sum() for group in groups])
        sums = torch.stack([single.shares[group] @ single.vectors[group] for group in groups])
        clients = [[ordered[row].client for row in group.tolist()] for group in groups]
        return Changes(sums / shares[:, None], shares, clients)


def flat(model: Tensors, start: Tensors) -> Float[Tensor, " d"]:
    """Return w_k − w_t as one vector, over everything that is not a whole number.

    Names are in the order of the alphabet: a model that was read from a checkpoint may have them in another order.
    """
    parts = [
        (model[name].double() - value.double()).flatten()
        for name, value in sorted(start.items())
        if value.is_floating_point()
    ]
    return torch.cat(parts)


def moved(start: Tensors, change: Float[Tensor, " d"], updates: list[Update]) -> Tensors:
    """Return w_t moved by a change; counters take the median of the clients'."""
    model = dict(start)
    place = 0
    for name, value in sorted(start.items()):
        if value.is_floating_point():
            part = change[place : place + value.numel()].view(value.shape)
            model[name] = (value.double() + part).to(value.dtype)
            place += value.numel()
        else:
            model[name] = torch.stack([update.model[name] for update in updates]).median(dim=0).values
    return model


def distrusted(weights: Float[Tensor, " m"], shares: Float[Tensor, " m"]) -> dict[int, str]:
    """Say whose update counted for less than half of its share of examples."""
    return {
        row: f"its update is far from the others': it counted {ratio:.2f} of its share"
        for row, ratio in enumerate((weights / shares.clamp(min=1e-300)).tolist())
        if ratio < 0.5
    }
