"""method: what a client minimises."""

from fedpu.method.aligned import Aligned
from fedpu.method.base import (
    Batch,
    ClientRound,
    Forward,
    Method,
    Outputs,
    OutputsOf,
    Parts,
    Preparation,
    PriorsOf,
    has_state,
)
from fedpu.method.batches import (
    cut_short,
    half_labelled_batches,
    mixed_batches,
    proportioned_batches,
    repeated_batches,
    shuffled_batches,
)
from fedpu.method.conventional import ConventionalPU
from fedpu.method.cross_entropy import PositiveOnly, Supervised
from fedpu.method.dist_pu import DistPU
from fedpu.method.fedlc import FedLC
from fedpu.method.fedmatch import FedMatch
from fedpu.method.fedpu import FedPU
from fedpu.method.fixmatch import FixMatch
from fedpu.method.labelled_only import LabelledOnly
from fedpu.method.sage import SAGE
from fedpu.method.uda import UDA
from fedpu.registry import Registry

METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        "fedpu": FedPU,
        "positive-only": PositiveOnly,
        "labelled-only": LabelledOnly,
        "supervised": Supervised,
        "conventional-pu": ConventionalPU,
        "aligned": Aligned,
        "fixmatch": FixMatch,
        "uda": UDA,
        "fedmatch": FedMatch,
        "sage": SAGE,
        "fedlc": FedLC,
        "dist-pu": DistPU,
    },
    group="fedpu.methods",
    base=Method,
)

LOWER_ENDS = tuple(name for name, method in METHODS.items() if method.end_of_gap == "lower")
"""the methods that the supervision gap is measured from, the paper's first: from the best of those that are compared"""
UPPER = next(name for name, method in METHODS.items() if method.end_of_gap == "upper")
"""the method that it is measured to"""
SUGGESTED = "aligned"
"""for somebody's own data with estimated class shares: on vectors, the best validation score (``results/suggestion``,
narrowly); on images, the test accuracies of ``docs/aligned.md``
"""
USUAL = ("aligned", "fedpu", LOWER_ENDS[0], UPPER)
"""what is compared where nothing else is asked for"""

__all__ = [
    "LOWER_ENDS",
    "METHODS",
    "SAGE",
    "SUGGESTED",
    "UDA",
    "UPPER",
    "USUAL",
    "Aligned",
    "Batch",
    "ClientRound",
    "ConventionalPU",
    "DistPU",
    "FedLC",
    "FedMatch",
    "FedPU",
    "FixMatch",
    "Forward",
    "LabelledOnly",
    "Method",
    "Outputs",
    "OutputsOf",
    "Parts",
    "PositiveOnly",
    "Preparation",
    "PriorsOf",
    "Supervised",
    "cut_short",
    "half_labelled_batches",
    "has_state",
    "mixed_batches",
    "proportioned_batches",
    "repeated_batches",
    "shuffled_batches",
]
