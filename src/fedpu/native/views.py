"""Views of images: rotated, stretched, sheared and moved with one interpolation, or with a square hidden."""

from __future__ import annotations

import ctypes
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from fedpu.native.calls import address, check

Images = Float[Tensor, "n c h w"]


class ImagesShape(ctypes.Structure):
    """Sizes of a batch, as ``views.cpp`` has them."""

    _fields_: ClassVar = [(name, ctypes.c_int64) for name in ("count", "channels", "height", "width")]


class Most(ctypes.Structure):
    """The largest rotation (radians), stretching (logarithms), shear and distance (pixels); what fills the border."""

    _fields_: ClassVar = [
        *((name, ctypes.c_double) for name in ("angle", "taller", "wider", "shear", "down", "right")),
        ("edge", ctypes.c_int64),
    ]


def affine(
    library: ctypes.CDLL, x: Images, numbers: Float[Tensor, "n 6"], magnitude: Float[Tensor, " n"], most: Most
) -> Images:
    """Return each image changed by its six numbers between 0 and 1: one half leaves it as it is."""
    x, numbers, magnitude = x.contiguous(), numbers.contiguous(), magnitude.contiguous()
    y = torch.empty_like(x)
    shape = ImagesShape(*x.shape)
    check(library.fedpu_affine(*map(address, (x, numbers, magnitude, y)), ctypes.byref(shape), ctypes.byref(most)))
    return y


def cutout(library: ctypes.CDLL, x: Images, centre: Float[Tensor, "n 2"], half: Float[Tensor, " n"]) -> Images:
    """Return the images with a square of zeros; its centre is in parts of the sides, half of its side in pixels."""
    x, centre, half = x.contiguous(), centre.contiguous(), half.contiguous()
    y = torch.empty_like(x)
    shape = ImagesShape(*x.shape)
    check(library.fedpu_cutout(*map(address, (x, centre, half, y)), ctypes.byref(shape)))
    return y


def agrees_with_pytorch(library: ctypes.CDLL) -> bool:
    """Say whether both give what PyTorch's own operations do, on a small example."""
    draw = torch.Generator().manual_seed(0)
    x, numbers = torch.randn(3, 2, 6, 9, generator=draw), torch.rand(3, 6, generator=draw)
    angle, taller, wider, shear, down, right = (2 * numbers.double() - 1).T
    one, zero = torch.ones_like(angle), torch.zeros_like(angle)
    turned = _matrices([angle.cos(), -angle.sin(), right], [angle.sin(), angle.cos(), down])
    sheared = _matrices([one, shear, zero], [zero, one, zero])
    stretched = _matrices([wider.exp(), zero, zero], [zero, taller.exp(), zero])
    to_pixels = torch.tensor([x.shape[3] / 2, x.shape[2] / 2, 1]).double().diag()
    back = to_pixels.inverse() @ (turned @ sheared @ stretched).inverse() @ to_pixels
    grid = affine_grid(back[:, :2], list(x.shape), align_corners=False)
    hidden = x.clone()
    hidden[:, :, 2:4, 4:6] = 0
    same = [torch.equal(cutout(library, x, torch.tensor([[0.5, 5 / 9]] * 3), torch.ones(3)), hidden)]
    for edge, padding in ((True, "border"), (False, "zeros")):
        expected = grid_sample(x.double(), grid, padding_mode=padding, align_corners=False)
        ours = affine(library, x, numbers, torch.ones(3), Most(1, 1, 1, 1, 1, 1, edge))
        same.append(torch.allclose(ours.double(), expected, rtol=1e-4, atol=1e-4))
    return all(same)


def _matrices(*rows: list[Tensor]) -> Float[Tensor, "n 3 3"]:
    """Return maps of the plane, by their first two rows."""
    last = [torch.zeros_like(rows[0][0])] * 2 + [torch.ones_like(rows[0][0])]
    return torch.stack([torch.stack(row, dim=1) for row in (*rows, last)], dim=1)
