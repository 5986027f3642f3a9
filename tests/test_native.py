"""The compiled kernels: the same numbers as PyTorch's layers, whatever the shape, and a way to do without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpu import native
from fedpu.engine.stacked import StackedNetwork
from fedpu.engine.stacked.layers import ThinBlock
from fedpu.native import compiled

needs_compiler = pytest.mark.skipif(native.kernels().library is None, reason=native.kernels().described)


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(
    channels=st.integers(1, 5),
    outputs=st.integers(1, 11),
    kernel=st.tuples(st.integers(1, 6), st.integers(1, 7)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    extra=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    batch=st.integers(1, 35),
    clients=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_it_is_convolution_pooling_and_relu_with_their_gradients(
    channels: int,
    outputs: int,
    kernel: tuple[int, int],
    padding: tuple[int, int],
    extra: tuple[int, int],
    batch: int,
    clients: int,
    seed: int,
) -> None:
    library = native.kernels().library
    assert library is not None
    draw = torch.Generator().manual_seed(seed)
    height, width = (max(1, k + e - 2 * p) for k, e, p in zip(kernel, extra, padding, strict=True))
    if min(height + 2 * padding[0] - kernel[0], width + 2 * padding[1] - kernel[1]) < 1:
        return  # there is no window to pool
    x = torch.randn(clients, channels, height, width, batch, generator=draw)
    weights = torch.randn(clients, outputs, channels, *kernel, generator=draw)
    bias = torch.randn(clients, outputs, generator=draw)
    y, place, shape = native.forward(library, x, weights, bias, padding)
    pull = torch.randn(y.shape, generator=draw)
    found = torch.full_like(weights, torch.nan), torch.full_like(bias, torch.nan)
    of_inputs = native.backward(library, pull, place, x, weights, found, shape, True)
    assert of_inputs is not None
    for k in range(clients):
        leaves = [t.double().requires_grad_() for t in (x[k].movedim(-1, 0), weights[k], bias[k])]
        expected = F.relu(F.max_pool2d(F.conv2d(leaves[0], leaves[1], leaves[2], padding=padding), 2))
        expected.backward(pull[k].movedim(-1, 0).double())
        torch.testing.assert_close(y[k].movedim(-1, 0).double(), expected, rtol=1e-4, atol=1e-4)
        ours = of_inputs[k].movedim(-1, 0), found[0][k], found[1][k]
        for own, leaf in zip(ours, leaves, strict=True):
            torch.testing.assert_close(own.double(), leaf.grad, rtol=1e-4, atol=1e-4)


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(
    groups=st.integers(1, 5),
    width=st.integers(1, 9),
    size=st.tuples(st.integers(1, 7), st.integers(2, 5)),
    examples=st.integers(1, 4),
    away=st.sampled_from([0.0, 1.0, -30.0]),
    seed=st.integers(0, 99),
)
def test_it_is_group_norm_and_relu_with_their_gradients(
    groups: int, width: int, size: tuple[int, int], examples: int, away: float, seed: int
) -> None:
    library = native.kernels().library
    assert library is not None
    draw = torch.Generator().manual_seed(seed)
    channels = groups * width
    x = away + torch.randn(examples, channels, *size, generator=draw)
    weight, bias = torch.randn(2, channels, generator=draw)
    pull = torch.randn(x.shape, generator=draw)
    leaves = [value.double().requires_grad_() for value in (x, weight, bias)]
    # Where a group has one value or two, its deviation may be next to nothing, and any rounding looks large.
    expected = F.relu(F.group_norm(leaves[0], groups, leaves[1], leaves[2], 1e-2))
    gradients = torch.autograd.grad(expected, leaves, pull.double())
    kept = native.normalise(library, x, weight, bias, groups, 1e-2)
    found = torch.full_like(weight, torch.nan), torch.full_like(bias, torch.nan)
    of_inputs = native.normalise_back(library, pull, kept, weight, found)
    torch.testing.assert_close(kept.y.double(), expected, rtol=1e-4, atol=1e-4)
    for own, truth in zip((of_inputs, *found), gradients, strict=True):
        torch.testing.assert_close(own.double(), truth, rtol=2e-4, atol=2e-4)


@needs_compiler
def test_a_normalisation_keeps_what_is_no_number() -> None:
    library = native.kernels().library
    assert library is not None
    x = torch.zeros(2, 4, 3, 3)
    x[1, 2, 0, 0] = torch.nan
    y = native.normalise(library, x, torch.ones(4), torch.zeros(4), 2, 1e-5).y
    assert torch.isnan(y[1, 2:]).all()
    assert not torch.isnan(y[0]).any()
    assert not torch.isnan(y[1, :2]).any()


@needs_compiler
def test_what_is_no_number_stays_none() -> None:
    library = native.kernels().library
    assert library is not None
    x = torch.zeros(1, 1, 4, 4, 3)
    x[0, 0, 0, 0, 1] = torch.nan
    y, _, _ = native.forward(library, x, torch.ones(1, 1, 1, 1, 1), torch.zeros(1, 1), (0, 0))
    assert torch.isnan(y[..., 1]).any()
    assert not torch.isnan(y[..., [0, 2]]).any()


@needs_compiler
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("order", [(torch.nn.MaxPool2d(2), torch.nn.ReLU()), (torch.nn.ReLU(), torch.nn.MaxPool2d(2))])
def test_a_network_takes_the_kernel_and_keeps_its_gradients(order: tuple[torch.nn.Module, ...], bias: bool) -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3, bias=bias), *order, torch.nn.Flatten(), torch.nn.Linear(27, 4)
    )
    twin = StackedNetwork.of(network)
    assert twin is not None
    assert isinstance(twin.layers[0], ThinBlock)
    flat = twin.flatten(dict(network.state_dict()))[None]
    x, pull, out = torch.randn(1, 1, 8, 8, 21), torch.randn(1, 4, 21), torch.empty_like(flat)
    with torch.no_grad():
        logits = twin.forward(twin.views(flat), x)
        twin.backward(twin.views(flat), pull, twin.views(out))
    network(x[0].movedim(-1, 0)).backward(pull[0].T)
    torch.testing.assert_close(logits[0].T, network(x[0].movedim(-1, 0)), rtol=1e-4, atol=1e-5)
    for own, p in zip(twin.unflatten(out[0]).values(), network.parameters(), strict=True):
        torch.testing.assert_close(own, p.grad, rtol=1e-4, atol=1e-4)


def test_strided_convolutions_stay_with_pytorch() -> None:
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 2, stride=2),
        torch.nn.MaxPool2d(2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 2),
    )
    twin = StackedNetwork.of(network)
    assert twin is not None
    assert not any(isinstance(layer, ThinBlock) for layer in twin.layers)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"FEDPU_KERNELS": "torch"}, "FEDPU_KERNELS=torch was set"),
        ({"PATH": "/nowhere"}, "no C++ compiler"),
        ({"XDG_CACHE_HOME": "/dev/null"}, "Not a directory"),
    ],
)
def test_without_them_pytorch_does_the_same(changed: dict[str, str], reason: str) -> None:
    script = (
        "from fedpu import native; from fedpu.engine.stacked import StackedNetwork;"
        "from fedpu.models import MODELS;"
        "twin = StackedNetwork.of(MODELS['paper-cnn']().build((1, 28, 28), 10));"
        "print(type(twin.layers[0]).__name__, native.kernels_are())"
    )
    environment = {"FEDPU_KERNELS": "", **os.environ, **changed}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.startswith("Conv2d PyTorch's: ")
    assert reason in done.stdout


def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.pooch, "os_cache", lambda name: tmp_path / name)
    folder = tmp_path / "fedpu" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert "others can write" in compiled.kernels.__wrapped__().described


@needs_compiler
def test_a_library_that_is_not_there_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled.pooch, "os_cache", lambda name: tmp_path / name)
    first = compiled.kernels.__wrapped__()
    (made,) = (tmp_path / "fedpu" / "kernels").iterdir()
    written = made.stat().st_mtime_ns
    assert first.library is not None
    assert compiled.kernels.__wrapped__().library is not None
    assert made.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("thin.cpp", "sum[o][3] += below[dx + 1] * w[o];", "sum[o][3] += below[dx] * w[o];"),
        ("norm.cpp", "of_weight[c] += along[c] * scales[g];", "of_weight[c] += along[c];"),
        ("views.cpp", "below[pixel] = to_y - top;", "below[pixel] = to_x - left;"),
    ],
)
def test_a_library_that_gives_other_numbers_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, right: str, wrong: str
) -> None:
    sources = {source.name: source for source in compiled.SOURCES}
    text = sources[file].read_text()
    assert right in text
    sources[file] = tmp_path / file
    sources[file].write_text(text.replace(right, wrong))
    monkeypatch.setattr(compiled, "SOURCES", list(sources.values()))
    monkeypatch.setattr(compiled.pooch, "os_cache", lambda name: tmp_path / name)
    described = compiled.kernels.__wrapped__().described
    assert "differ from PyTorch's" in described or native.kernels().library is None
    assert not any((tmp_path / "fedpu" / "kernels").glob("*.so"))
