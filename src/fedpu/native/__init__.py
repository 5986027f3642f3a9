"""native: what PyTorch has no fast kernel for, compiled on this machine when it is first needed."""

from fedpu.native.compiled import Kernels, kernels, kernels_are
from fedpu.native.norm import Normalised, normalise, normalise_back
from fedpu.native.thin import ThinShape, backward, forward
from fedpu.native.views import Most, affine, cutout

__all__ = [
    "Kernels",
    "Most",
    "Normalised",
    "ThinShape",
    "affine",
    "backward",
    "cutout",
    "forward",
    "kernels",
    "kernels_are",
    "normalise",
    "normalise_back",
]
