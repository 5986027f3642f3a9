"""What every call of a compiled function needs: where a tensor's numbers lie, and an error for what went wrong."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def address(tensor: Tensor, channels_last: bool = False) -> ctypes.c_void_p:
    """Return where the numbers of a tensor begin, which lie there one after the other; its channels may come last."""
    assert tensor.is_contiguous() or (channels_last and tensor.is_contiguous(memory_format=torch.channels_last))
    assert tensor.dtype in (torch.float32, torch.uint8)
    return ctypes.c_void_p(tensor.data_ptr())


def check(code: int) -> None:
    """Turn what a kernel returns into an error where it is one."""
    if code:
        raise MemoryError("There is not enough memory for a layer's intermediate values.")
