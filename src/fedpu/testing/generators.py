"""The generators that a program has only one of: PyTorch's, NumPy's and Python's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

States = dict[str, Any]


def states() -> States:
    """Return the states of the global generators, but Python's: those who check types at run time draw from it."""
    return {
        "PyTorch's": torch.get_rng_state().numpy().tobytes(),
        "NumPy's": str(np.random.get_state()),  # noqa: NPY002 - the global one is what is watched
    }


def moved(before: States) -> str | None:
    """Return whose global generator is not in the state that it was in."""
    now = states()
    return next((name for name in before if before[name] != now[name]), None)


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Seed all global generators, and leave them as they were in the end."""
    kept = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    torch.manual_seed(number)
    np.random.seed(number)  # noqa: NPY002
    random.seed(number)
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        random.setstate(kept[2])
