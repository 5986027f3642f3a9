"""The ``[faults]`` table: how many clients fail or lie, and in which way. Who they are is drawn from the seed."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from fedpu.errors import ConfigError
from fedpu.randomness import numpy_generator
from fedpu.registry import Settings

KINDS = ("sign_flip", "scale", "noise", "nan", "label_swap", "little", "stale", "silent", "slow")
"""keys that count clients, one per kind of fault, in the order in which clients are drawn for them"""


class Faults(Settings):
    """Numbers of clients by their fault. A client has one at most, and has it in every round."""

    sign_flip: int = Field(0, ge=0, description="clients that return their model mirrored: w_t − flip_by · (w_k − w_t)")
    flip_by: float = Field(1.0, gt=0, le=1e6, description="for sign_flip: how far they go the wrong way")
    scale: int = Field(0, ge=0, description="clients that exaggerate: w_t + scale_by · (w_k − w_t)")
    scale_by: float = Field(10.0, ge=0, le=1e6, description="for scale: by how much")
    noise: int = Field(0, ge=0, description="clients that return w_t and noise, noise_by times as long as their update")
    noise_by: float = Field(1.0, gt=0, le=1e6, description="for noise: how long it is")
    nan: int = Field(0, ge=0, description="clients that return NaN for every number")
    label_swap: int = Field(0, ge=0, description="clients that call class y of C the class C − 1 − y")
    little: int = Field(
        0,
        ge=0,
        description='clients that know all updates and return their mean, less little_by standard deviations: "a '
        'little is enough" (Baruch et al. 2019)',
    )
    little_by: float = Field(
        1.5, ge=0, le=1e6, description="for little: how many standard deviations; the paper's experiments have 1.5"
    )
    stale: int = Field(0, ge=0, description="clients that train the run's first model in every round")
    silent: int = Field(0, ge=0, description="clients that never answer")
    slow: int = Field(0, ge=0, description="clients that do only slow_share of their steps")
    slow_share: float = Field(0.1, ge=0, le=1, description="for slow: the share of its steps that a client does")

    @property
    def count(self) -> int:
        """How many clients have a fault."""
        return sum(getattr(self, kind) for kind in KINDS)

    def drawn(self, seed: int, clients: int) -> dict[int, str]:
        """Return who has which fault: a draw that depends on the seed alone, the same whatever the fault is."""
        if self.count > clients:
            raise ConfigError(
                f"[faults] asks for {self.count} faulty clients, and there are {clients}. Lower its numbers."
            )
        order = numpy_generator(seed, "faults").permutation(clients)
        return dict(sorted(zip((int(k) for k in order), self._kinds(), strict=False)))

    def named(self, seed: int, clients: int) -> dict[str, list[int]]:
        """Return the clients of every fault, as the record has them."""
        drawn = self.drawn(seed, clients)
        return {kind: [k for k, own in drawn.items() if own == kind] for kind in dict.fromkeys(drawn.values())}

    def _kinds(self) -> Iterator[str]:
        for kind in KINDS:
            yield from [kind] * getattr(self, kind)
