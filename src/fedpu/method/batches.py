"""Ways to draw the batches of an update."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Int64
from torch import Tensor

from fedpu.round import Work

EpochGenerator = Callable[[int], torch.Generator]
Batches = list[Int64[Tensor, " _"]]


def shuffled_batches(usable: Int64[Tensor, " n"], work: Work, generator: EpochGenerator) -> Batches:
    """Return the positions of every batch: in each local epoch a new order, a straggler's list cut short."""
    if len(usable) == 0:
        return []
    size = work.batch_size or len(usable)
    batches: Batches = []
    for epoch in range(work.epochs):
        batches += usable[torch.randperm(len(usable), generator=generator(epoch))].split(size)
    return cut_short(batches, work)


def mixed_batches(
    labels: Int64[Tensor, " n"],
    work: Work,
    generator: EpochGenerator,
    labelled: int,
    unlabelled: int,
    steps: int | None = None,
) -> Batches:
    """Return batches of ``labelled`` labelled and ``unlabelled`` unlabelled examples, the labelled ones first.

    An epoch is a pass over whichever of the two lasts longer, or has the given number of steps; whatever does not last
    is gone through again, shuffled anew each time.
    """
    groups = [(labels >= 0).nonzero()[:, 0], (labels < 0).nonzero()[:, 0]]
    wanted = [labelled, unlabelled]
    pairs = [(group, count) for group, count in zip(groups, wanted, strict=True) if len(group) and count]
    if not pairs:
        return []
    steps = steps or max(math.ceil(len(group) / count) for group, count in pairs)
    batches: Batches = []
    for epoch in range(work.epochs):
        random = generator(epoch)
        drawn = [_endless(group, steps * count, random).split(count) for group, count in pairs]
        batches += [torch.cat(parts) for parts in zip(*drawn, strict=True)]
    return cut_short(batches, work)


def half_labelled_batches(labels: Int64[Tensor, " n"], work: Work, generator: EpochGenerator) -> Batches:
    """Return batches that are half labelled, as many as a pass over all examples has.

    A client with no label, with more of them than that, or that takes all of its data at once, goes through its
    examples as they are.
    """
    few = 0 < int((labels >= 0).sum()) < len(labels) / 2
    size = work.batch_size
    if not few or size is None or not 2 <= size < len(labels):
        return shuffled_batches(torch.arange(len(labels)), work, generator)
    half = size // 2
    return mixed_batches(labels, work, generator, half, size - half, steps=math.ceil(len(labels) / size))


def proportioned_batches(
    labels: Int64[Tensor, " n"], work: Work, generator: EpochGenerator, unlabelled_ratio: float
) -> Batches:
    """Return batches with ``unlabelled_ratio`` unlabelled examples for each labelled one, as far as whole numbers go.

    A batch has at least one of each, and an epoch as many steps as a pass over all examples. A client that has one kind
    alone, or that takes all of its data at once, goes through its examples as they are.
    """
    size = work.batch_size or len(labels)
    both = 0 < int((labels >= 0).sum()) < len(labels)
    if not both or not 2 <= size < len(labels):
        return shuffled_batches(torch.arange(len(labels)), work, generator)
    labelled = min(max(1, round(size / (1 + unlabelled_ratio))), size - 1)
    return mixed_batches(labels, work, generator, labelled, size - labelled, steps=math.ceil(len(labels) / size))


def repeated_batches(usable: Int64[Tensor, " n"], entries: int, work: Work, generator: EpochGenerator) -> Batches:
    """Return batches of usable positions alone, in an epoch as many as a pass over all ``entries`` would give.

    The usable ones are gone through again and again, shuffled anew each time.
    """
    if len(usable) == 0:
        return []
    size = work.batch_size or entries
    steps, size = math.ceil(entries / size), min(size, len(usable))
    batches: Batches = []
    for epoch in range(work.epochs):
        batches += _endless(usable, steps * size, generator(epoch)).split(size)
    return cut_short(batches, work)


def cut_short(batches: Batches, work: Work) -> Batches:
    """Return the batches that a straggler manages; one at least."""
    return batches[: max(1, math.floor(work.share * len(batches) + 1e-9))]


def _endless(group: Int64[Tensor, " n"], count: int, random: torch.Generator) -> Int64[Tensor, " _"]:
    passes = math.ceil(count / len(group))
    return torch.cat([group[torch.randperm(len(group), generator=random)] for _ in range(passes)])[:count]
