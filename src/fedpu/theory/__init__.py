"""theory: the paper's bounds in a form that holds, as numbers; ``printed`` has them as the paper prints them."""

from fedpu.theory import printed
from fedpu.theory.concentration import Bound, Sample, bound, vc_constant
from fedpu.theory.federation import (
    Counts,
    FederationBound,
    counts,
    fedpu_sample,
    possible,
    scaled,
    supervised,
    theorem5,
)
from fedpu.theory.statements import lemma3, theorem1, theorem2, theorem4

__all__ = [
    "Bound",
    "Counts",
    "FederationBound",
    "Sample",
    "bound",
    "counts",
    "fedpu_sample",
    "lemma3",
    "possible",
    "printed",
    "scaled",
    "supervised",
    "theorem1",
    "theorem2",
    "theorem4",
    "theorem5",
    "vc_constant",
]
