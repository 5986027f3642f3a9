"""native: what PyTorch has no fast kernel for, compiled on this machine when it is first needed."""

from fedpu.engine.native.compiled import Kernels, kernels, kernels_are
from fedpu.engine.native.norm import Normalised, normalise, normalise_back
from fedpu.engine.native.thin import ThinShape, backward, forward

__all__ = [
    "Kernels",
    "Normalised",
    "ThinShape",
    "backward",
    "forward",
    "kernels",
    "kernels_are",
    "normalise",
    "normalise_back",
]
