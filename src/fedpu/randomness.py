"""All randomness comes from (seed, purpose, keys such as round and client), never from a global generator.

Two draws with the same key are the same bits in any process, in any order, on any number of workers.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch


def _sequence(seed: int, purpose: str, keys: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *keys])


def numpy_generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """Return the NumPy generator of ``(seed, purpose, keys)``."""
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, keys)))


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """Return the 63-bit integer with which PyTorch is seeded for ``(seed, purpose, keys)``."""
    return int(_sequence(seed, purpose, keys).generate_state(1, np.uint64)[0] >> 1)


def torch_generator(seed: int, purpose: str, *keys: int) -> torch.Generator:
    """Return the PyTorch generator (on the CPU) of ``(seed, purpose, keys)``."""
    return torch.Generator().manual_seed(torch_seed(seed, purpose, *keys))
