"""A learning rate that follows measurements: divided each time a while has passed without gain."""

from __future__ import annotations

import math
from collections.abc import Iterable


def plateau_scale(losses: Iterable[float], patience: int, factor: float) -> float:
    """Return what the learning rate is multiplied by after these losses on validation data, in their order.

    Each time ``patience`` losses in a row have not been below the best one so far, it is divided by ``factor``.
    """
    best, waited, scale = math.inf, 0, 1.0
    for loss in losses:
        if loss < best:
            best, waited = loss, 0
            continue
        waited += 1
        if waited == patience:
            scale, waited = scale / factor, 0
    return scale
