"""Clients that call their classes by wrong names."""

from __future__ import annotations

from dataclasses import replace

from fedpu.faults.settings import Faults
from fedpu.labelling import Federation


def mislabelled(federation: Federation, faults: Faults, seed: int) -> Federation:
    """Return the federation in which clients with swapped labels call class y of C the class C − 1 − y.

    They say so consistently: their positive classes are swapped, too. Their priors are of their data, which are real.
    """
    liars = faults.named(seed, len(federation)).get("label_swap", [])
    if not liars:
        return federation
    labels, positive = federation.labels.clone(), federation.positive.clone()
    last = len(federation.classes) - 1
    for k in liars:
        own = labels[federation.span(k)]
        own[own >= 0] = last - own[own >= 0]
        positive[k] = positive[k].flip(0)
    return replace(federation, labels=labels, positive=positive)
