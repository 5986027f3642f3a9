"""Convolutions in bfloat16, for networks with many channels on processors that multiply it twice as fast.

A number in bfloat16 has float32's range and 8 binary digits. What a convolution reads (inputs, filters, on the way back
the gradient) is rounded to that, products are summed in float32, and the result is rounded once more. All else stays in
float32: the parameters themselves, normalisation, sums, the optimiser. A processor without such instructions rounds the
same and multiplies in float32, so that the model is the same up to rounding, and nothing is gained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
How = tuple[list[int], list[int], list[int], bool, list[int], int]
"""stride, padding, dilation, transposed, output padding, groups"""


@cache
def multiplies_bfloat16(device: str) -> bool:
    """Has PyTorch fast convolutions of bfloat16 there?"""
    return device != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
    """Return the convolution of rounded inputs and filters, rounded, in float32; ``bias`` is added as it is."""
    y: Tensor = aten.convolution(rounded(x), rounded(weight), None, *how).bfloat16().float()
    return y if bias is None else y.add_(bias.view(1, -1, *[1] * (y.dim() - 2)))


def convolve_back(gradient: Tensor, x: Tensor, weight: Tensor, how: How, wanted: Sequence[bool]) -> list[Any]:
    """Return the gradients of inputs, filters and bias, in float32; None where one is not ``wanted``."""
    read = [rounded(value) for value in (gradient, x, weight)]
    back, filters, _ = aten.convolution_backward(*read, None, *how, [wanted[0], wanted[1], False])
    bias = gradient.sum(dim=[0, *range(2, gradient.dim())]) if wanted[2] else None
    return [*(value if value is None else value.bfloat16().float() for value in (back, filters)), bias]


def rounded(value: Tensor) -> Tensor:
    """Return numbers rounded to bfloat16, in the type in which they are multiplied fastest."""
    small = value.bfloat16()
    return small if multiplies_bfloat16(value.device.type) else small.float()


class Bfloat16Convolutions(TorchFunctionMode):
    """While it is entered, every two-dimensional convolution that any module calls is one of :func:`convolve`."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Put our convolution in the place of PyTorch's; leave all other functions alone."""
        if func is not torch.conv2d:
            return func(*args, **(kwargs or {}))
        return _conv2d(*args, **(kwargs or {}))


def _conv2d(
    input: Tensor,  # the names are PyTorch's
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    if isinstance(padding, str):
        if padding == "same":
            rows, columns = (step * (size - 1) for step, size in zip(pair(dilation), weight.shape[2:], strict=True))
            sides = [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2]
            input = torch.nn.functional.pad(input, sides)
        padding = 0
    how = (pair(stride), pair(padding), pair(dilation), False, [0, 0], groups)
    alone = input.dim() == 3
    y: Tensor = _Convolution.apply(input[None] if alone else input, weight, bias, how)  # type: ignore[no-untyped-call]
    return y[0] if alone else y


class _Convolution(torch.autograd.Function):
    """:func:`convolve` and its way back, for PyTorch's graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
        ctx.how = how
        x, weight = rounded(x), rounded(weight)
        ctx.save_for_backward(x, weight)
        return convolve(x, weight, bias, how)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return (*convolve_back(gradients[0], x, weight, ctx.how, ctx.needs_input_grad[:3]), None)


def pair(value: int | Sequence[int]) -> list[int]:
    """Return a number for height and width as one for each."""
    return [value, value] if isinstance(value, int) else list(value)
