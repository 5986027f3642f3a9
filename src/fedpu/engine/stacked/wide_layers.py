"""Layers with many channels: PyTorch's own kernels in its channels-last format, without a graph.

With many channels a convolution of PyTorch's runs at the speed of a matrix product, and what an engine can still save
is what stands around it: channels-last needs no reordering before and after a convolution, activations are overwritten
where nobody needs them again, and gradients are asked of the kernels directly. Activations are (N, C, H, W), one client
at a time. ``forward`` keeps what ``backward`` needs.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from fedpu.engine.bfloat16 import How, convolve, convolve_back, pair, rounded
from fedpu.models import ResidualSum
from fedpu.models.small_resnet import GAIN, TINY, StandardisedConv2d
from fedpu.native import kernels, normalise, normalise_back

aten = torch.ops.aten
ALL = [True, True, True]
FILTER = (1, 2, 3)
"""the dimensions of one filter"""


class WideLayer(ABC):
    """One layer of one client's network."""

    sizes: tuple[tuple[int, ...], ...] = ()
    """shapes of its parameters, in the order of the module's ``parameters()``"""
    may_overwrite: bool = True
    """does nobody else need its input?"""

    @abstractmethod
    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Return the layer's output."""

    @abstractmethod
    def backward(
        self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Tensor | None:
        """Write the parameters' gradients to ``out``; return the gradient of the input if ``inputs``.

        ``gradient`` may be overwritten.
        """

    def convolutions(self) -> Iterator[Convolution]:
        """Yield the convolutions in it."""
        yield from ()


class Convolution(WideLayer):
    """``nn.Conv2d`` of any kind."""

    in_bfloat16: bool

    def __init__(self, module: nn.Conv2d) -> None:
        self.sizes = _sizes(module)
        padding = module.padding
        assert isinstance(padding, tuple)
        self.how: How = (list(module.stride), list(padding), list(module.dilation), False, [0, 0], module.groups)
        self.in_bfloat16 = False

    def convolutions(self) -> Iterator[Convolution]:
        """Yield itself."""
        yield self

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Call PyTorch's convolution."""
        self.x = rounded(x) if self.in_bfloat16 else x
        bias = parameters[1] if len(parameters) == 2 else None
        if self.in_bfloat16:
            return convolve(self.x, parameters[0], bias, self.how)
        y: Tensor = aten.convolution(x, parameters[0], bias, *self.how)
        return y

    def backward(
        self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Tensor | None:
        """Call its backward pass."""
        bias = len(out) == 2
        wanted = [inputs, True, bias]
        if self.in_bfloat16:
            x, weight, shift = convolve_back(gradient, self.x, parameters[0], self.how, wanted)
        else:
            x, weight, shift = aten.convolution_backward(
                gradient, self.x, parameters[0], [len(parameters[0])], *self.how, wanted
            )
        out[0].copy_(weight)
        if bias:
            out[1].copy_(shift)
        return x if inputs else None


class StandardisedConvolution(Convolution):
    """``StandardisedConv2d``: filters v = g s c with c = w − mean(w) and s = (|c|² + ε)^−½."""

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Convolve with the standardised filters."""
        weight, *bias = parameters
        self.centred = weight - weight.mean(dim=FILTER, keepdim=True)
        self.scale = (self.centred.square().sum(dim=FILTER, keepdim=True) + TINY).rsqrt()
        self.used = [self.centred * (GAIN * self.scale), *bias]
        return super().forward(x, self.used)

    def backward(
        self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Tensor | None:
        """∂c = g s (∂v − s² c ⟨∂v, c⟩), ∂w = ∂c − mean(∂c)."""
        x = super().backward(gradient, self.used, out, inputs)
        along = (out[0] * self.centred).sum(dim=FILTER, keepdim=True) * self.scale.square()
        centred = (out[0] - self.centred * along) * (GAIN * self.scale)
        out[0].copy_(centred - centred.mean(dim=FILTER, keepdim=True))
        return x


class GroupNormalisation(WideLayer):
    """``nn.GroupNorm`` with weight and bias."""

    def __init__(self, module: nn.GroupNorm) -> None:
        self.sizes = _sizes(module)
        self.groups, self.eps = module.num_groups, module.eps

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Normalise the groups of every example."""
        self.shape = (x.shape[0], x.shape[1], x[0, 0].numel(), self.groups)
        y, mean, scale = aten.native_group_norm(x, *parameters, *self.shape, self.eps)
        self.kept = (x, mean, scale)
        normal: Tensor = y
        return normal

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Tensor:
        """Call PyTorch's backward pass."""
        if self.kept[0].dim() == 4 and not gradient.is_contiguous(memory_format=torch.channels_last):
            gradient = gradient.contiguous(memory_format=torch.channels_last)
        x, weight, bias = aten.native_group_norm_backward(gradient, *self.kept, parameters[0], *self.shape, ALL)
        out[0].copy_(weight)
        out[1].copy_(bias)
        back: Tensor = x
        return back


class NormalisedRectifier(GroupNormalisation):
    """``nn.GroupNorm`` with ``nn.ReLU`` behind it, of images: one compiled kernel each way."""

    def __init__(self, norm: GroupNormalisation, library: ctypes.CDLL) -> None:
        self.sizes, self.groups, self.eps = norm.sizes, norm.groups, norm.eps
        self.library = library

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Normalise the groups of every example, and cut at 0."""
        self.seen = x.shape
        image = x if x.dim() == 4 else x[..., None, None]  # a vector is an image of one pixel
        self.normalised = normalise(self.library, image, parameters[0], parameters[1], self.groups, self.eps)
        return self.normalised.y.view(self.seen)

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Tensor:
        """Go back through both."""
        image = gradient.view(self.normalised.x.shape)
        back = normalise_back(self.library, image, self.normalised, parameters[0], (out[0], out[1]))
        return back.view(self.seen)


class Rectifier(WideLayer):
    """``nn.ReLU``."""

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """y = max(x, 0), in the place of x where nobody needs that."""
        self.y = x.clamp_min_(0) if self.may_overwrite else x.clamp_min(0)
        return self.y

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Tensor:
        """∂x = ∂y where y > 0."""
        x: Tensor = aten.threshold_backward.grad_input(gradient, self.y, 0, grad_input=gradient)
        return x


class Pointwise(WideLayer):
    """A smooth activation, of which PyTorch knows the gradient."""

    def __init__(self, function: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._function = function
        self._slope = slope

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """y = f(x)."""
        self.x = x
        return self._function(x)

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Tensor:
        """∂x = ∂y f'(x)."""
        return self._slope(gradient, self.x)


class MaxPool(WideLayer):
    """``nn.MaxPool2d``."""

    def __init__(self, module: nn.MaxPool2d) -> None:
        pairs = (module.kernel_size, module.stride, module.padding, module.dilation)
        self.how = [pair(sizes) for sizes in pairs]
        self.ceil = module.ceil_mode

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Take the largest of every window, and remember where it was."""
        y, where = aten.max_pool2d_with_indices(x, *self.how, self.ceil)
        self.kept = (x, where)
        largest: Tensor = y
        return largest

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Tensor:
        """Hand each gradient to the place that its maximum came from."""
        x, where = self.kept
        back: Tensor = aten.max_pool2d_with_indices_backward(gradient, x, *self.how, self.ceil, where)
        return back


class GlobalMaxPool(WideLayer):
    """``nn.AdaptiveMaxPool2d(1)``."""

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Take the largest value of each channel."""
        y, where = aten.adaptive_max_pool2d(x, [1, 1])
        self.kept = (x, where)
        largest: Tensor = y
        return largest

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Tensor:
        """Hand each gradient to the place that its maximum came from."""
        back: Tensor = aten.adaptive_max_pool2d_backward(gradient, *self.kept)
        return back


class GlobalMean(WideLayer):
    """``nn.AdaptiveAvgPool2d(1)``."""

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Average over height and width."""
        self.shape = x.shape
        return x.mean(dim=(2, 3), keepdim=True)

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Tensor:
        """Spread the gradient evenly."""
        spread = (gradient / (self.shape[2] * self.shape[3])).expand(self.shape)
        return spread.contiguous(memory_format=torch.channels_last)


class Flattening(WideLayer):
    """``nn.Flatten``."""

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Make one dimension of all features, channels first."""
        self.shape = x.shape
        return x.flatten(1)

    def backward(self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool) -> Tensor:
        """Give the features their shape back."""
        features = gradient.view(self.shape)
        return features.contiguous(memory_format=torch.channels_last) if features.dim() == 4 else features


class Product(WideLayer):
    """``nn.Linear`` on vectors."""

    def __init__(self, module: nn.Linear) -> None:
        self.sizes = _sizes(module)

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """y = x Wᵀ + b."""
        self.x = x
        return x @ parameters[0].T if len(parameters) == 1 else torch.addmm(parameters[1], x, parameters[0].T)

    def backward(
        self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Tensor | None:
        """∂W = ∂yᵀ x, ∂b = Σ ∂y, ∂x = ∂y W."""
        torch.mm(gradient.T, self.x, out=out[0])
        if len(out) == 2:
            torch.sum(gradient, dim=0, out=out[1])
        return gradient @ parameters[0] if inputs else None


class Chain(WideLayer):
    """Layers one after another."""

    def __init__(self, layers: Sequence[WideLayer]) -> None:
        self.layers = list(layers)
        self.sizes = tuple(size for layer in layers for size in layer.sizes)
        self.first = next((index for index, layer in enumerate(layers) if layer.sizes), 0)
        if self.layers:
            self.layers[0].may_overwrite = False  # whoever made its input may need it

    def convolutions(self) -> Iterator[Convolution]:
        """Yield those of all layers."""
        for layer in self.layers:
            yield from layer.convolutions()

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Run all layers."""
        for layer in self.layers:
            mine, parameters = parameters[: len(layer.sizes)], parameters[len(layer.sizes) :]
            x = layer.forward(x, mine)
        return x

    def backward(
        self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Tensor | None:
        """Go back through all layers, or to the first that has parameters."""
        end = 0 if inputs else self.first
        for index in range(len(self.layers) - 1, end - 1, -1):
            layer = self.layers[index]
            count = len(parameters) - len(layer.sizes)
            before = layer.backward(gradient, parameters[count:], out[count:], inputs or index > self.first)
            parameters, out = parameters[:count], out[:count]
            if before is not None:
                gradient = before
        return gradient if inputs else None


class Residual(WideLayer):
    """x + f(x)."""

    def __init__(self, inner: Chain) -> None:
        self.inner = inner
        self.sizes = inner.sizes

    def convolutions(self) -> Iterator[Convolution]:
        """Yield those of the inner layers."""
        return self.inner.convolutions()

    def forward(self, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Add what the inner layers make of x."""
        return x + self.inner.forward(x, parameters)

    def backward(
        self, gradient: Tensor, parameters: Sequence[Tensor], out: Sequence[Tensor], inputs: bool
    ) -> Tensor | None:
        """∂x = ∂y + what comes back through the inner layers."""
        inner = self.inner.backward(gradient.clone(), parameters, out, inputs)
        return gradient.add_(inner) if inner is not None else None


CONVOLUTIONS: dict[type[nn.Module], type[Convolution]] = {
    nn.Conv2d: Convolution,
    StandardisedConv2d: StandardisedConvolution,
}


def wide_layer_for(module: nn.Module) -> WideLayer | None:
    """Return the twin of a module, or None where there is none."""
    kind = type(module)
    if kind is nn.Sequential:
        return _chain(list(module.children()))
    if isinstance(module, ResidualSum):
        inner = _chain([module.layers])
        return None if inner is None else Residual(inner)
    if isinstance(module, nn.Conv2d) and kind in CONVOLUTIONS:
        plain = module.padding_mode == "zeros" and isinstance(module.padding, tuple)
        return CONVOLUTIONS[kind](module) if plain else None
    if isinstance(module, nn.GroupNorm) and kind is nn.GroupNorm:
        return GroupNormalisation(module) if module.affine else None
    if isinstance(module, nn.MaxPool2d) and kind is nn.MaxPool2d:
        return None if module.return_indices else MaxPool(module)
    if isinstance(module, nn.Linear) and kind is nn.Linear:
        return Product(module)
    return _simple_layer_for(module)


def _simple_layer_for(module: nn.Module) -> WideLayer | None:
    kind = type(module)
    if kind is nn.ReLU:
        return Rectifier()
    if isinstance(module, nn.GELU) and kind is nn.GELU:
        how = module.approximate
        return Pointwise(
            lambda x: aten.gelu(x, approximate=how), lambda g, x: aten.gelu_backward(g, x, approximate=how)
        )
    if kind is nn.SiLU:
        return Pointwise(aten.silu, aten.silu_backward)
    if isinstance(module, nn.Flatten) and kind is nn.Flatten:
        return Flattening() if (module.start_dim, module.end_dim) == (1, -1) else None
    if isinstance(module, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d) and module.output_size in (1, (1, 1)):
        if kind is nn.AdaptiveAvgPool2d:
            return GlobalMean()
        return GlobalMaxPool() if kind is nn.AdaptiveMaxPool2d and not module.return_indices else None
    if isinstance(module, nn.Identity) or (isinstance(module, nn.Dropout | nn.Dropout2d) and module.p == 0):
        return Chain([])
    return None


def unknown_layer(module: nn.Module) -> str | None:
    """Return one line that names the first module without a twin."""
    if wide_layer_for(module) is not None:
        return None
    inside = module.children() if isinstance(module, nn.Sequential | ResidualSum) else ()
    return next((name for child in inside if (name := unknown_layer(child))), str(module).splitlines()[0].rstrip("("))


def _chain(modules: Sequence[nn.Module]) -> Chain | None:
    layers = [wide_layer_for(module) for module in modules]
    known = [layer for layer in layers if layer is not None]
    return Chain(_joined(known)) if len(known) == len(layers) else None


def _joined(layers: Sequence[WideLayer]) -> list[WideLayer]:
    """Return the layers, each GroupNorm as one with a ReLU behind it where there is a kernel for both."""
    joined: list[WideLayer] = []
    for layer in layers:
        before = joined[-1] if joined else None
        if isinstance(layer, Rectifier) and type(before) is GroupNormalisation:
            library = kernels().library
            joined[-1:] = [before, layer] if library is None else [NormalisedRectifier(before, library)]
        else:
            joined.append(layer)
    return joined


def _sizes(module: nn.Module) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(p.shape) for p in module.parameters())
