"""native: what PyTorch has no fast kernel for, compiled on this machine when it is first needed."""

from fedpu.engine.native.compiled import Kernels, kernels, kernels_are
from fedpu.engine.native.thin import ThinShape, backward, forward

__all__ = ["Kernels", "ThinShape", "backward", "forward", "kernels", "kernels_are"]
