"""Convolution, 2×2 max pooling and ReLU in one pass, for a stack of clients."""

from __future__ import annotations

import ctypes
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from fedpu.native.calls import address, check

_NAMES = (
    "channels",
    "height",
    "width",
    "outputs",
    "kernel_height",
    "kernel_width",
    "padding_height",
    "padding_width",
    "batch",
)


class ThinShape(ctypes.Structure):
    """Sizes of one client's layer, as ``thin.cpp`` has them: the input's with its padding."""

    _fields_: ClassVar = [(name, ctypes.c_int64) for name in _NAMES]


def forward(
    library: ctypes.CDLL,
    x: Float[Tensor, "K C H W N"],
    weights: Float[Tensor, "K O C kh kw"],
    bias: Float[Tensor, "K O"],
    padding: tuple[int, int],
) -> tuple[Float[Tensor, "K O h w N"], UInt8[Tensor, "K O h w N"], ThinShape]:
    """Return relu(maxpool(conv(x))), the place of each maximum in its window (4: cut by ReLU), and the sizes."""
    clients, channels, height, width, batch = x.shape
    outputs, _, kernel_height, kernel_width = weights.shape[1:]
    (above, left), whole = padding, (height + 2 * padding[0], width + 2 * padding[1])
    shape = ThinShape(channels, *whole, outputs, kernel_height, kernel_width, above, left, batch)
    rows, columns = (whole[0] - kernel_height + 1) // 2, (whole[1] - kernel_width + 1) // 2
    y = torch.empty(clients, outputs, rows, columns, batch)
    place = torch.empty(y.shape, dtype=torch.uint8)
    by_tap = weights.permute(0, 2, 3, 4, 1).contiguous()
    for k in range(clients):
        tensors = (x[k], by_tap[k], bias[k], y[k], place[k])
        check(library.fedpu_forward(*map(address, tensors), ctypes.byref(shape)))
    return y, place, shape


def backward(
    library: ctypes.CDLL,
    gradient: Float[Tensor, "K O h w N"],
    place: UInt8[Tensor, "K O h w N"],
    x: Float[Tensor, "K C H W N"],
    weights: Float[Tensor, "K O C kh kw"],
    out: tuple[Float[Tensor, "K O C kh kw"], Float[Tensor, "K O"]],
    shape: ThinShape,
    inputs: bool,
) -> Float[Tensor, "K C H W N"] | None:
    """Write the gradients of weights and bias to ``out``; return that of the input if ``inputs``."""
    of_inputs = torch.empty_like(x) if inputs else None
    for k in range(len(x)):
        of_weights, of_bias = out[0][k], out[1][k]
        tensors = (gradient[k], place[k], x[k], weights[k], of_weights, of_bias)
        last = None if of_inputs is None else address(of_inputs[k])
        check(library.fedpu_backward(*map(address, tensors), last, ctypes.byref(shape)))
    return of_inputs


def agrees_with_pytorch(library: ctypes.CDLL) -> bool:
    """Say whether both functions give what PyTorch's own layers do, on a small example with parts of every size."""
    draw = torch.Generator().manual_seed(0)
    x, weights = torch.randn(1, 3, 9, 10, 19, generator=draw), torch.randn(1, 7, 3, 3, 6, generator=draw)
    bias, padding = torch.randn(1, 7, generator=draw), (1, 2)
    y, place, shape = forward(library, x, weights, bias, padding)
    pull, out = torch.randn(y.shape, generator=draw), (torch.empty_like(weights), torch.empty_like(bias))
    of_inputs = backward(library, pull, place, x, weights, out, shape, True)
    assert of_inputs is not None
    with torch.enable_grad():
        leaves = [t[0].double().requires_grad_() for t in (x, weights, bias)]
        expected = F.relu(F.max_pool2d(F.conv2d(leaves[0].movedim(-1, 0), leaves[1], leaves[2], padding=padding), 2))
        gradients = torch.autograd.grad(expected, leaves, pull[0].movedim(-1, 0).double())
    pairs = zip((y[0].movedim(-1, 0), of_inputs[0], out[0][0], out[1][0]), (expected, *gradients), strict=True)
    return all(torch.allclose(ours.double(), theirs, rtol=1e-4, atol=1e-4) for ours, theirs in pairs)
