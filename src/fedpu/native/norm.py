"""GroupNorm and ReLU in one pass, in PyTorch's channels-last format."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from fedpu.native.calls import address, check

LAST = torch.channels_last
_address = partial(address, channels_last=True)


class NormShape(ctypes.Structure):
    """Sizes of one layer, as ``norm.cpp`` has them."""

    _fields_: ClassVar = [
        *((name, ctypes.c_int64) for name in ("examples", "pixels", "channels", "groups")),
        ("eps", ctypes.c_double),
    ]


class Normalised(NamedTuple):
    """What the way back needs."""

    x: Float[Tensor, "N C H W"]
    y: Float[Tensor, "N C H W"]
    mean: Float[Tensor, "N G"]
    scale: Float[Tensor, "N G"]
    shape: NormShape


def normalise(
    library: ctypes.CDLL,
    x: Float[Tensor, "N C H W"],
    weight: Float[Tensor, " C"],
    bias: Float[Tensor, " C"],
    groups: int,
    eps: float,
) -> Normalised:
    """Return relu(group_norm(x)) as ``y``, and what it was made from."""
    x = x.contiguous(memory_format=LAST)
    shape = NormShape(len(x), x.shape[2] * x.shape[3], x.shape[1], groups, eps)
    y, (mean, scale) = torch.empty_like(x, memory_format=LAST), torch.empty(2, len(x), groups)
    check(library.fedpu_norm_forward(*map(_address, (x, weight, bias, y, mean, scale)), ctypes.byref(shape)))
    return Normalised(x, y, mean, scale, shape)


def normalise_back(
    library: ctypes.CDLL,
    gradient: Float[Tensor, "N C H W"],
    kept: Normalised,
    weight: Float[Tensor, " C"],
    out: tuple[Float[Tensor, " C"], Float[Tensor, " C"]],
) -> Float[Tensor, "N C H W"]:
    """Write the gradients of weight and bias to ``out``; return that of the input, in the place of ``gradient``."""
    gradient = gradient.contiguous(memory_format=LAST)
    tensors = (gradient, kept.x, kept.y, weight, kept.mean, kept.scale, *out)
    check(library.fedpu_norm_backward(*map(_address, tensors), ctypes.byref(kept.shape)))
    return gradient


def agrees_with_pytorch(library: ctypes.CDLL) -> bool:
    """Say whether both functions give what PyTorch's own layers do, on a small example."""
    draw = torch.Generator().manual_seed(0)
    x, (weight, bias) = 3 + torch.randn(3, 12, 3, 5, generator=draw), torch.randn(2, 12, generator=draw)
    kept = normalise(library, x, weight, bias, 4, 1e-5)
    pull, out = torch.randn(x.shape, generator=draw), (torch.empty(12), torch.empty(12))
    with torch.enable_grad():
        leaves = [value.double().requires_grad_() for value in (x, weight, bias)]
        expected = F.relu(F.group_norm(leaves[0], 4, leaves[1], leaves[2], 1e-5))
        gradients = torch.autograd.grad(expected, leaves, pull.double())
    back = normalise_back(library, pull, kept, weight, out)
    pairs = zip((kept.y, back, *out), (expected, *gradients), strict=True)
    return all(torch.allclose(ours.double(), theirs, rtol=1e-4, atol=1e-4) for ours, theirs in pairs)
