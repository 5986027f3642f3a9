"""What clients hold out of their own data to score the global model on: as they have it, labelled and unlabelled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from fedpu.labelling.federation import UNLABELLED, Federation, HiddenTruth
from fedpu.randomness import numpy_generator

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]


def draw_held_out(federation: Federation, share: float, seed: int) -> Bool[Tensor, " n"]:
    """Return which examples each client holds out: a share of every class that it labels, and of the unlabelled.

    The draw is systematic: a client's examples stand in a row, those of a label together and otherwise at random, and
    every (1/share)-th is taken from a random start on. So each label, −1 included, is held out in proportion, and on
    average exactly so where clients have few examples. The only example of a label stays with training, which would
    lose the class with it. Examples are drawn, not entries: in the case-control scenario a labelled one takes its
    unlabelled twin along.
    """
    given = _given_labels(federation)
    sizes = federation.sizes.numpy()
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rng = numpy_generator(seed, "validation")
    order = np.lexsort((rng.random(len(given)), given, owner))
    place = np.arange(len(given)) - (np.cumsum(sizes) - sizes)[owner]  # owners are sorted, so the order keeps them
    start = rng.random(len(sizes))[owner]
    taken = np.floor((place + 1) * share + start) > np.floor(place * share + start)
    held: Mask = np.empty(len(given), dtype=bool)
    held[order] = taken & ~_alone(owner, given[order])
    return torch.from_numpy(held)


def split(
    federation: Federation, hidden: HiddenTruth, held_out: Bool[Tensor, " n"]
) -> tuple[Federation, HiddenTruth, Federation]:
    """Return the federation without the examples that are held out, with its hidden truth, and those examples alone.

    The second federation has the same clients. Nobody is handed the true labels of what is held out.
    """
    kept = ~held_out
    truth = HiddenTruth(hidden.labels[kept[federation.rows]], hidden.examples[kept])
    return _only(federation, kept), truth, _only(federation, held_out)


def _given_labels(federation: Federation) -> Numbers:
    """Return the label of each example, −1 where its client gave none."""
    given = np.full(len(federation.inputs), UNLABELLED)
    labelled = federation.labels >= 0
    given[federation.rows[labelled].numpy()] = federation.labels[labelled].numpy()
    return given


def _alone(owner: Numbers, given: Numbers) -> Mask:
    """Return which examples, sorted by client and label, are their client's only one of a label."""
    new = np.ones(len(given) + 1, dtype=bool)
    new[1:-1] = (owner[1:] != owner[:-1]) | (given[1:] != given[:-1])
    alone: Mask = new[:-1] & new[1:]
    return alone


def _only(federation: Federation, kept: Bool[Tensor, " n"]) -> Federation:
    """Return the federation with some of its examples alone."""
    clients = len(federation)
    entries = kept[federation.rows]
    place = kept.cumsum(0) - 1
    owner = torch.repeat_interleave(torch.arange(clients), federation.sizes)
    counts = torch.bincount(federation.owner[entries], minlength=clients)
    return replace(
        federation,
        inputs=federation.inputs[kept],
        rows=place[federation.rows[entries]],
        labels=federation.labels[entries],
        offsets=torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]),
        sizes=torch.bincount(owner[kept], minlength=clients),
    )
