"""Layers that run for a stack of K clients at once, each client with weights of its own.

Activations are (K, features…, N): the batch is the innermost dimension. On a CPU that makes convolutions with few
channels into products of long matrices, and pooling into maxima of views. Every layer has its gradient written out:
``forward`` keeps what ``backward`` needs. Parameters and gradients are views of one flat buffer a stack.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu import native

THIN = 4
"""input channels up to which the unfolded convolution beats PyTorch's on a CPU (measured)"""

Stack = Float[Tensor, "K ... N"]


class Layer(ABC):
    """One layer of a stack of networks."""

    sizes: tuple[tuple[int, ...], ...] = ()
    """shapes of its parameters, in the order of the module's ``parameters()``"""
    needs_output: bool = False
    """does ``backward`` look at what ``forward`` returned?"""
    may_overwrite_input: bool = False
    """set where the layer before does not need its output"""

    @abstractmethod
    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """Return the layer's output; ``parameters`` have a leading dimension K."""

    @abstractmethod
    def backward(
        self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Stack | None:
        """Write the parameters' gradients to ``out``; return the gradient of the input if ``inputs``."""


class Linear(Layer):
    """``nn.Linear``."""

    def __init__(self, module: nn.Linear) -> None:
        self.sizes = tuple(tuple(p.shape) for p in module.parameters())

    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """y = W x + b."""
        self.x = x
        if len(parameters) == 1:
            return torch.bmm(parameters[0], x)
        return torch.baddbmm(parameters[1][:, :, None], parameters[0], x)

    def backward(
        self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Stack | None:
        """∂W = ∂y xᵀ, ∂b = Σ ∂y, ∂x = Wᵀ ∂y."""
        torch.bmm(gradient, self.x.transpose(1, 2), out=out[0])
        if len(out) == 2:
            torch.sum(gradient, dim=2, out=out[1])
        return torch.bmm(parameters[0].transpose(1, 2), gradient) if inputs else None


class Conv2d(Layer):
    """``nn.Conv2d`` without groups or dilation.

    The input is unfolded along its width only: (C·kw, H, W', N). With the batch innermost, the rows that the kernel's
    row dy meets are then one contiguous block, and the convolution is a sum of kh matrix products without more copies.
    """

    def __init__(self, module: nn.Conv2d) -> None:
        self.sizes = tuple(tuple(p.shape) for p in module.parameters())
        self.kernel = (int(module.kernel_size[0]), int(module.kernel_size[1]))
        self.stride = (int(module.stride[0]), int(module.stride[1]))
        assert isinstance(module.padding, tuple)
        self.padding = (int(module.padding[0]), int(module.padding[1]))

    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """Unfold along the width, then add up a product for every row of the kernel."""
        (kh, kw), (sh, sw), (ph, pw) = self.kernel, self.stride, self.padding
        if ph or pw:
            x = torch.nn.functional.pad(x, (0, 0, pw, pw, ph, ph))
        k, c, h, w, n = x.shape
        self.shape, self.rows, self.columns = (k, c, h, w, n), (h - kh) // sh + 1, (w - kw) // sw + 1
        strides = (c * h * w * n, h * w * n, n, w * n, sw * n, 1)
        unfolded = x.contiguous().as_strided((k, c, kw, h, self.columns, n), strides)
        self.unfolded = unfolded.contiguous().view(k, c * kw, h, self.columns * n)
        outputs = self.sizes[0][0]
        # (K, O, C, kh, kw) → (K, kh, O, C·kw): a matrix for every row of the kernel
        self.matrices = parameters[0].permute(0, 3, 1, 2, 4).reshape(k, kh, outputs, c * kw)
        length = self.rows * self.columns * n
        if len(parameters) == 2:
            y = torch.baddbmm(parameters[1][:, :, None], self.matrices[:, 0], self._block(0))
        else:
            y = torch.bmm(self.matrices[:, 0], self._block(0))
        for dy in range(1, kh):
            y.baddbmm_(self.matrices[:, dy], self._block(dy))
        return y.view(k, outputs, self.rows, self.columns, n) if length else y

    def _block(self, dy: int) -> Tensor:
        """Return the rows that row ``dy`` of the kernel meets, as a matrix of columns."""
        sh = self.stride[0]
        rows = self.unfolded[:, :, dy : dy + sh * (self.rows - 1) + 1 : sh]
        if sh == 1:
            k, depth, _, row = self.unfolded.shape
            start = dy * row
            return self.unfolded.view(k, depth, -1)[:, :, start : start + self.rows * row]
        return rows.reshape(rows.shape[0], rows.shape[1], -1)

    def backward(
        self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Stack | None:
        """∂W_dy = ∂y Uᵀ_dy for the unfolded rows U_dy; ∂U_dy += W_dyᵀ ∂y, folded back along the width."""
        (kh, kw), (sh, sw), (ph, pw) = self.kernel, self.stride, self.padding
        k, c, h, w, n = self.shape
        outputs = self.sizes[0][0]
        gradient = gradient.reshape(k, outputs, -1)
        blocks = [self._block(dy) for dy in range(kh)]
        # ∂y Uᵀ or U ∂yᵀ: the same sums; a product of long rows is up to twice as fast with the fewer rows first.
        if outputs > c * kw:
            products = [torch.bmm(block, gradient.transpose(1, 2)).transpose(1, 2) for block in blocks]
        else:
            products = [torch.bmm(gradient, block.transpose(1, 2)) for block in blocks]
        weights = torch.stack(products, dim=1)
        out[0].copy_(weights.view(k, kh, outputs, c, kw).permute(0, 2, 3, 1, 4))
        if len(out) == 2:
            torch.sum(gradient, dim=2, out=out[1])
        if not inputs:
            return None
        row = self.columns * n
        unfolded = gradient.new_zeros(k, c * kw, h, row)
        for dy in range(kh):
            if sh == 1:
                block = unfolded.view(k, c * kw, -1)[:, :, dy * row : (dy + self.rows) * row]
                block.baddbmm_(self.matrices[:, dy].transpose(1, 2), gradient)
            else:
                product = torch.bmm(self.matrices[:, dy].transpose(1, 2), gradient)
                unfolded[:, :, dy : dy + sh * (self.rows - 1) + 1 : sh] += product.view(k, c * kw, self.rows, row)
        pieces = unfolded.view(k, c, kw, h, self.columns, n)
        x = gradient.new_zeros(k, c, h, w, n)
        for dx in range(kw):
            x[:, :, :, dx : dx + sw * (self.columns - 1) + 1 : sw] += pieces[:, :, dx]
        return x[:, :, ph : h - ph, pw : w - pw]


class ThinBlock(Layer):
    """``nn.Conv2d`` with stride 1, ``nn.MaxPool2d(2)`` and ``nn.ReLU``, in either order, as one compiled kernel."""

    def __init__(self, convolution: Conv2d, library: ctypes.CDLL) -> None:
        self.sizes, self.padding = convolution.sizes, convolution.padding
        self.library = library

    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """Return the maxima of the windows that are above zero, and keep where they were."""
        self.x = x.contiguous()
        y, self.places, self.shape = native.forward(
            self.library, self.x, parameters[0], self._bias(parameters), self.padding
        )
        return y

    def backward(
        self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Stack | None:
        """Hand each gradient to the place of its maximum, and from there to weights and inputs."""
        gradients = out[0], self._bias(out)
        return native.backward(
            self.library, gradient.contiguous(), self.places, self.x, parameters[0], gradients, self.shape, inputs
        )

    def _bias(self, parameters: Sequence[Tensor]) -> Tensor:
        return parameters[1] if len(parameters) == 2 else parameters[0].new_zeros(parameters[0].shape[:2])


class MaxPool2x2(Layer):
    """``nn.MaxPool2d(2)``: the maximum of four views. Ties go to the first of a window, as in PyTorch."""

    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """Take the larger of each pair in a row, then the larger of the two rows."""
        self.x = x
        a, b, c, d = self._corners(x)
        top, bottom = torch.maximum(a, b), torch.maximum(c, d)
        # 0/1 in floats: products of floats with booleans are several times slower.
        self.right_top, self.right_bottom, self.lower = (torch.empty_like(top) for _ in range(3))
        torch.gt(b, a, out=self.right_top)
        torch.gt(d, c, out=self.right_bottom)
        torch.gt(bottom, top, out=self.lower)
        return torch.maximum(top, bottom)

    def backward(self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Stack:
        """Hand each gradient to the place that its maximum came from."""
        # Where the values are not needed any more their memory is taken: it is still near.
        x = self.x if self.may_overwrite_input else torch.empty_like(self.x)
        if x.shape[2] % 2 or x.shape[3] % 2:
            x.zero_()  # a row or column was never looked at
        a, b, c, d = self._corners(x)
        below = gradient * self.lower
        above = gradient - below
        torch.mul(above, self.right_top, out=b)
        torch.sub(above, b, out=a)
        torch.mul(below, self.right_bottom, out=d)
        torch.sub(below, d, out=c)
        return x

    @staticmethod
    def _corners(x: Stack) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        h, w = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
        x = x[:, :, :h, :w]
        return x[:, :, ::2, ::2], x[:, :, ::2, 1::2], x[:, :, 1::2, ::2], x[:, :, 1::2, 1::2]


class ReLU(Layer):
    """``nn.ReLU``."""

    needs_output = True

    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """y = max(x, 0)."""
        self.y = x.clamp_min_(0)  # in place: no layer needs its own output again
        return self.y

    def backward(self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Stack:
        """∂x = ∂y where y > 0."""
        x: Tensor = torch.ops.aten.threshold_backward(gradient, self.y, 0)
        return x


class Flatten(Layer):
    """``nn.Flatten``."""

    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """Make one dimension of all features."""
        self.shape = x.shape
        return x.reshape(x.shape[0], -1, x.shape[-1])

    def backward(self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Stack:
        """Give the features their shape back."""
        return gradient.reshape(self.shape)


class GroupNorm(Layer):
    """``nn.GroupNorm`` with weight and bias."""

    def __init__(self, module: nn.GroupNorm) -> None:
        self.sizes = tuple(tuple(p.shape) for p in module.parameters())
        self.groups, self.eps = module.num_groups, module.eps

    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """y = γ x̂ + β with x̂ of mean 0 and variance 1 over each group of an example."""
        k, c, n = x.shape[0], x.shape[1], x.shape[-1]
        grouped = x.reshape(k, self.groups, -1, n)
        variance, mean = torch.var_mean(grouped, dim=2, correction=0, keepdim=True)
        self.scale = (variance + self.eps).rsqrt()
        self.normal = (grouped - mean).mul_(self.scale)
        weight, bias = (p[:, :, None, None] for p in parameters)
        return torch.addcmul(bias, self.normal.view(k, c, -1, n), weight).view(x.shape)

    def backward(self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Stack:
        """∂x = scale · (∂x̂ − mean(∂x̂) − x̂ · mean(∂x̂ x̂)), means over the group."""
        k, c, n = gradient.shape[0], gradient.shape[1], gradient.shape[-1]
        flat = gradient.reshape(k, c, -1, n)
        normal = self.normal.view(k, c, -1, n)
        torch.sum(flat * normal, dim=(2, 3), out=out[0])
        torch.sum(flat, dim=(2, 3), out=out[1])
        inner = (flat * parameters[0][:, :, None, None]).view(k, self.groups, -1, n)
        correction = (inner * self.normal).mean(dim=2, keepdim=True)
        x = (inner - inner.mean(dim=2, keepdim=True)).addcmul_(self.normal, correction, value=-1).mul_(self.scale)
        return x.view(gradient.shape)


class GlobalAveragePool(Layer):
    """``nn.AdaptiveAvgPool2d(1)``."""

    def forward(self, x: Stack, parameters: Sequence[Tensor]) -> Stack:
        """Average over height and width."""
        self.shape = x.shape
        return x.mean(dim=(2, 3), keepdim=True)

    def backward(self, gradient: Stack, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Stack:
        """Spread the gradient evenly."""
        return (gradient / (self.shape[2] * self.shape[3])).expand(self.shape)


def layer_for(module: nn.Module) -> Layer | None:
    """Return the stacked twin of a module, or None where there is none."""
    if type(module) is nn.Linear:
        return Linear(module)
    if type(module) is nn.ReLU:
        return ReLU()
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return Flatten()
    if type(module) is nn.Conv2d and _thin_convolution(module):
        return Conv2d(module)
    if type(module) is nn.MaxPool2d and _halves(module):
        return MaxPool2x2()
    if type(module) is nn.GroupNorm and module.affine:
        return GroupNorm(module)
    if type(module) is nn.AdaptiveAvgPool2d and module.output_size in (1, (1, 1)):
        return GlobalAveragePool()
    return None


def fused(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers with each convolution, pooling and ReLU in a row as one, where there is a compiled kernel."""
    library = native.kernels().library if any(isinstance(layer, Conv2d) for layer in layers) else None
    found: list[Layer] = []
    rest = list(layers)
    while rest:
        first, after = rest[0], {type(layer) for layer in rest[1:3]}
        plain = isinstance(first, Conv2d) and first.stride == (1, 1)
        if library is not None and plain and after == {MaxPool2x2, ReLU}:
            assert isinstance(first, Conv2d)
            found.append(ThinBlock(first, library))
            rest = rest[3:]
        else:
            found.append(rest.pop(0))
    return found


def _thin_convolution(module: nn.Conv2d) -> bool:
    """Is it plain, and with few enough channels to gain? PyTorch's own is faster where channels are many."""
    plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
    return plain and isinstance(module.padding, tuple) and module.in_channels <= THIN


def _halves(module: nn.MaxPool2d) -> bool:
    two = (2, (2, 2))
    plain = module.padding in (0, (0, 0)) and module.dilation in (1, (1, 1)) and not module.return_indices
    return module.kernel_size in two and module.stride in two and plain and not module.ceil_mode
