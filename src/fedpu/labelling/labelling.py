"""Who labels what: from true labels and a partition to a federation in which most labels are gone."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator, model_validator

from fedpu.data import Dataset
from fedpu.errors import LabellingError
from fedpu.labelling.cover import Counts, Mask, assign_positive, check_explicit
from fedpu.labelling.federation import UNLABELLED, Federation, HiddenTruth, Scenario
from fedpu.partition import Partition
from fedpu.randomness import numpy_generator
from fedpu.registry import Settings

Count = Annotated[int, Field(ge=0, le=10**6)]
Labels = np.ndarray[Any, np.dtype[np.int64]]


FRACTION = 0.5
"""of a positive class, unless something else is asked for"""


class Labelling(Settings):
    """Which classes are a client's positive classes, and how many of their examples it has labelled."""

    positive: Literal["as-given"] | Count | list[Count] | list[list[Count]] = Field(
        1,
        union_mode="left_to_right",
        description="positive classes of a client: a number, a list with one number per client, explicit sets "
        '[[0, 1], [2], …], or "as-given" (the data hold −1 where nobody labelled)',
    )
    overlap: bool = Field(False, description="may a class be positive for several clients?")
    fraction: float = Field(
        FRACTION, gt=0, le=1, description='share of each positive class that is labelled; "1/3" works too'
    )
    per_class: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="labelled examples of each positive class of a client, drawn at random, in place of a fraction; an "
        "error where a client has fewer",
    )
    scenario: Scenario = Field(
        "censored",
        description='"censored": labelled examples leave the unlabelled set (the paper\'s experiments); '
        '"case-control": the unlabelled set is the whole sample (its derivation)',
    )

    @field_validator("fraction", mode="before")
    @classmethod
    def _as_fraction(cls, value: object) -> object:
        if isinstance(value, str):
            try:
                return float(Fraction(value))
            except (ValueError, ZeroDivisionError) as error:
                raise ValueError("must be a number or a fraction such as '1/3'") from error
        return value

    @model_validator(mode="after")
    def _share_or_number(self) -> Labelling:
        # A file with all keys has the default fraction in it, which nobody has asked for.
        if self.per_class is not None and self.fraction != FRACTION:
            raise ValueError(
                f"fraction = {self.fraction:g} and per_class = {self.per_class} exclude each other. Remove one of them "
                f"(a fraction of {FRACTION:g}, the default, counts as removed)"
            )
        return self


def label(data: Dataset, partition: Partition, labelling: Labelling, seed: int) -> tuple[Federation, HiddenTruth]:
    """Hide the labels that no client would have given; return what training may see and what evaluation may see."""
    partition.check(len(data.labels))
    partition = partition.shuffled(seed, data.order_key)
    truth = data.labels.numpy()[partition.rows]
    owner = np.repeat(np.arange(len(partition)), np.diff(partition.offsets))
    if labelling.positive == "as-given":
        labels, positive = truth.copy(), _class_counts(owner, truth, len(partition), len(data.classes)) > 0
        _refuse_unlabelled_class(positive)
    else:
        if (truth < 0).any():
            raise LabellingError(
                f"'{data.name}' holds unlabelled examples (−1), so labels can't be hidden at random as "
                f"labelling.positive "
                f'= {labelling.positive} asks. Set labelling.positive = "as-given".'
            )
        held = _class_counts(owner, truth, len(partition), len(data.classes))
        positive = _positive_classes(labelling, held > 0, seed)
        labels = _hide(truth, owner, held, positive, labelling, numpy_generator(seed, "labels", *data.order_key))
    return _federation(data, partition, owner, truth, labels, positive, labelling.scenario)


def label_everything(data: Dataset, partition: Partition, seed: int) -> tuple[Federation, HiddenTruth]:
    """Return the federation of Baseline-2: every class that a client holds is positive, and all of it is labelled."""
    partition.check(len(data.labels))
    partition = partition.shuffled(seed, data.order_key)
    truth = data.labels.numpy()[partition.rows]
    if (truth < 0).any():
        raise LabellingError(
            f"A method that is trained on every label needs them all, but '{data.name}' holds unlabelled ones (−1)."
        )
    owner = np.repeat(np.arange(len(partition)), np.diff(partition.offsets))
    positive = _class_counts(owner, truth, len(partition), len(data.classes)) > 0
    return _federation(data, partition, owner, truth, truth.copy(), positive, "censored")


def _class_counts(owner: Labels, labels: Labels, clients: int, classes: int) -> Counts:
    known = labels >= 0
    flat = np.bincount(owner[known] * classes + labels[known], minlength=clients * classes)
    return flat.reshape(clients, classes)


def _positive_classes(labelling: Labelling, holds: Mask, seed: int) -> Mask:
    clients, classes = holds.shape
    wanted = labelling.positive
    if isinstance(wanted, list):
        if len(wanted) != clients:
            raise LabellingError(
                f"labelling.positive has {len(wanted)} entries for {clients} clients; give one a client, or a single "
                f"number."
            )
        if wanted and isinstance(wanted[0], list):
            positive = np.zeros_like(holds)
            for client, chosen in enumerate(wanted):
                assert isinstance(chosen, list)
                for cls in chosen:
                    if cls >= classes:
                        raise LabellingError(
                            f"labelling.positive names class {cls} for client {client}; classes are 0 … {classes - 1}."
                        )
                    positive[client, cls] = True
            check_explicit(positive, holds, labelling.overlap)
            return positive
    counts = np.broadcast_to(np.asarray(wanted, dtype=np.int64), (clients,))
    return assign_positive(holds, counts, labelling.overlap, numpy_generator(seed, "positive classes"))


def _hide(
    truth: Labels, owner: Labels, held: Counts, positive: Mask, labelling: Labelling, rng: np.random.Generator
) -> Labels:
    """Keep a random choice of the labels of each client's positive classes, at least one of each; hide all others."""
    quota = np.where(positive, _wanted(held, positive, labelling), 0)
    # Rank every example at random within its client and class; the first `quota` of each group keep their label.
    group = owner * held.shape[1] + truth
    order = np.lexsort((rng.random(len(truth)), group))
    first = np.concatenate([[0], np.cumsum(held.reshape(-1))[:-1]])
    rank = np.empty(len(truth), dtype=np.int64)
    rank[order] = np.arange(len(truth)) - first[group[order]]
    return np.where(rank < quota.reshape(-1)[group], truth, UNLABELLED)


def _wanted(held: Counts, positive: Mask, labelling: Labelling) -> Counts:
    """Return how many examples of each class a client would label, were the class positive."""
    if labelling.per_class is None:
        share: Counts = np.maximum(np.rint(held * labelling.fraction), 1).astype(np.int64)
        return share
    for client, cls in np.argwhere(positive & (held < labelling.per_class))[:1]:
        raise LabellingError(
            f"labelling.per_class = {labelling.per_class} asks for as many labelled examples of class {cls} on client "
            f"{client}, which holds {held[client, cls]}. Lower it, use fewer clients, or partition the data so that "
            "every client holds enough of its positive classes."
        )
    return np.full_like(held, labelling.per_class)


def _federation(
    data: Dataset,
    partition: Partition,
    owner: Labels,
    truth: Labels,
    labels: Labels,
    positive: Mask,
    scenario: Scenario,
) -> tuple[Federation, HiddenTruth]:
    rows, sizes = np.arange(len(partition.rows)), np.diff(partition.offsets)
    known = not (truth < 0).any()
    priors = _class_counts(owner, truth, len(partition), len(data.classes)) / sizes[:, None] if known else None
    if scenario == "case-control":
        labelled = np.flatnonzero(labels >= 0)
        unlabelled = np.full_like(labels, UNLABELLED)
        order = np.argsort(np.concatenate([owner, owner[labelled]]), kind="stable")
        rows = np.concatenate([rows, rows[labelled]])[order]
        labels = np.concatenate([unlabelled, labels[labelled]])[order]
        truth = np.concatenate([truth, truth[labelled]])[order]
        owner = np.concatenate([owner, owner[labelled]])[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(partition)))])
    federation = Federation(
        inputs=data.inputs[torch.from_numpy(partition.rows)],
        rows=torch.from_numpy(rows),
        labels=torch.from_numpy(labels),
        offsets=torch.from_numpy(offsets.astype(np.int64)),
        sizes=torch.from_numpy(sizes.astype(np.int64)),
        positive=torch.from_numpy(positive),
        priors=None if priors is None else torch.from_numpy(priors.astype(np.float32)),
        scenario=scenario,
        classes=data.classes,
        normalisation=data.normalisation,
    )
    return federation, HiddenTruth(torch.from_numpy(truth), torch.from_numpy(partition.rows))


def _refuse_unlabelled_class(positive: Mask) -> None:
    for cls in np.flatnonzero(~positive.any(axis=0))[:1]:
        raise LabellingError(f"Nobody labels class {cls}: every class must be positive for at least one client.")
