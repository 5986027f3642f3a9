"""Which classes each client labels: a random assignment that covers every class whenever one exists."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from fedpu.errors import LabellingError

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Counts = np.ndarray[Any, np.dtype[np.int64]]


def assign_positive(holds: Mask, wanted: Counts, overlap: bool, rng: np.random.Generator) -> Mask:
    """Choose ``wanted[k]`` positive classes for each client ``k`` among those it holds, so that every class is chosen.

    ``holds`` is clients × classes. First every class is matched to a client that holds it and has room (a maximum
    bipartite matching, so a cover is found whenever there is one); then, with overlap, the room left is filled at
    random.
    """
    classes = holds.shape[1]
    held = holds.sum(axis=1)
    for client in np.flatnonzero(wanted > held)[:1]:
        raise LabellingError(
            f"labelling.positive asks client {client} for {wanted[client]} positive classes, but it holds examples of "
            f"only {held[client]}. Ask for fewer, or partition the data so that it holds more."
        )
    total = int(wanted.sum())
    if total < classes:
        raise LabellingError(
            f"The clients label {total} classes together, but there are {classes}: some class would be labelled by "
            "nobody. Raise labelling.positive or the number of clients."
        )
    if total > classes and not overlap:
        raise LabellingError(
            f"The clients label {total} classes together, but there are only {classes} and labelling.overlap = false. "
            "Set labelling.overlap = true, or lower labelling.positive."
        )
    chosen = _cover(holds, wanted, rng)
    _refuse_uncovered(chosen, holds)
    for client in np.flatnonzero(chosen.sum(axis=1) < wanted):
        free = rng.permutation(np.flatnonzero(holds[client] & ~chosen[client]))
        chosen[client, free[: wanted[client] - chosen[client].sum()]] = True
    return chosen


def _cover(holds: Mask, wanted: Counts, rng: np.random.Generator) -> Mask:
    """Match as many classes as possible, each to one client, client ``k`` at most ``wanted[k]`` times."""
    slots = rng.permutation(np.repeat(np.arange(len(wanted)), wanted))
    order = rng.permutation(holds.shape[1])
    match = maximum_bipartite_matching(csr_array(holds.T[order][:, slots]), perm_type="column")
    chosen = np.zeros_like(holds)
    matched = match >= 0
    chosen[slots[match[matched]], order[matched]] = True
    return chosen


def _refuse_uncovered(chosen: Mask, holds: Mask) -> None:
    uncovered = np.flatnonzero(~chosen.any(axis=0))
    if len(uncovered):
        holders = np.flatnonzero(holds[:, uncovered[0]])
        names = ", ".join(map(str, holders[:10])) or "nobody"
        raise LabellingError(
            f"No choice of positive classes covers all classes: class {', '.join(map(str, uncovered))} would be "
            f"labelled "
            f"by nobody (class {uncovered[0]} is held by client {names}). Raise labelling.positive or change the "
            f"partition."
        )


def check_explicit(positive: Mask, holds: Mask, overlap: bool) -> None:
    """Refuse explicit class sets that name a class its client does not hold, leave one to nobody, or overlap
    unasked.
    """
    for client, cls in np.argwhere(positive & ~holds)[:1]:
        raise LabellingError(
            f"labelling.positive lets client {client} label class {cls}, but it holds no example of that class."
        )
    labellers = positive.sum(axis=0)
    for cls in np.flatnonzero(labellers == 0)[:1]:
        raise LabellingError(f"Nobody labels class {cls}: every class must be positive for at least one client.")
    for cls in np.flatnonzero(labellers > 1)[:1]:
        if not overlap:
            raise LabellingError(
                f"Class {cls} is positive for {labellers[cls]} clients, but labelling.overlap = false. Set it to true."
            )
