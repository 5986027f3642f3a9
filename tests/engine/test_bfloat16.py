"""Convolutions in bfloat16: what is rounded and what is not, against exact sums; the engines; training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from fedpu.applications.experiment import run
from fedpu.applications.prepared import prepare
from fedpu.applications.training import job_of
from fedpu.config import Config
from fedpu.engine import bfloat16
from fedpu.engine.bfloat16 import Bfloat16Convolutions
from fedpu.engine.stacked import WideNetwork, twin_of

ROUNDING = 2.0**-8
"""the largest relative error of one rounding to 8 digits"""


@pytest.fixture(params=["as this processor does", "in float32"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply as this processor does it, and as one does that has no bfloat16."""
    if request.param == "in float32":
        monkeypatch.setattr(bfloat16, "multiplies_bfloat16", lambda device: False)


def exactly(x: Tensor) -> Tensor:
    return x.bfloat16().double()


@pytest.mark.usefixtures("arithmetic")
@pytest.mark.parametrize(
    ("groups", "stride", "bias"), [(1, 1, True), (2, 2, False), (8, 1, True)], ids=["plain", "groups", "depthwise"]
)
def test_it_is_the_convolution_of_rounded_numbers(groups: int, stride: int, bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    module = nn.Conv2d(8, 16, 3, stride=stride, padding=1, groups=groups, bias=bias)
    x = torch.randn(5, 8, 9, 7, generator=generator, requires_grad=True)
    with Bfloat16Convolutions():
        y = module(x)
    pull = torch.randn(y.shape, generator=generator)
    y.backward(pull)

    wide, weight = exactly(x.detach()).requires_grad_(), exactly(module.weight.detach()).requires_grad_()
    true = torch.conv2d(wide, weight, None, stride, 1, 1, groups)
    true.backward(exactly(pull))
    shift = 0 if module.bias is None else module.bias.detach().double()[:, None, None]
    assert wide.grad is not None
    assert weight.grad is not None
    for found, value in ((y.double() - shift, true), (x.grad, wide.grad), (module.weight.grad, weight.grad)):
        assert found is not None
        # Sums near 0 of large products have the error of float32's sums besides that of the last rounding.
        torch.testing.assert_close(found.double(), value, rtol=ROUNDING, atol=1e-5)
    if bias:
        torch.testing.assert_close(module.bias.grad, pull.sum((0, 2, 3)))
    assert y.dtype == x.grad.dtype == module.weight.dtype == torch.float32


@pytest.mark.usefixtures("arithmetic")
def test_whole_numbers_are_exact() -> None:
    x, weight = torch.randint(-3, 4, (2, 4, 6, 6)).float(), torch.randint(-2, 3, (5, 4, 3, 3)).float()
    expected = torch.conv2d(x, weight)
    with Bfloat16Convolutions():
        assert torch.equal(torch.conv2d(x, weight), expected.bfloat16().float())
    assert torch.equal(torch.conv2d(x, weight), expected), "outside everything is as it was"


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("kernel", [(3, 3), (2, 5), (4, 2)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_every_padding_that_a_module_may_ask_for(padding: str, kernel: tuple[int, int], dilation: int) -> None:
    module = nn.Conv2d(3, 4, kernel, padding=padding, dilation=dilation)
    x = torch.randint(-2, 3, (3, 12, 11)).float()
    module.weight.data = torch.randint(-1, 2, module.weight.shape).float()
    expected = module(x)
    with Bfloat16Convolutions():
        torch.testing.assert_close(module(x), expected, rtol=0, atol=1e-5)


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1),
        nn.GroupNorm(4, 8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


@pytest.mark.usefixtures("arithmetic")
def test_a_twin_rounds_where_its_network_does() -> None:
    network = layers()
    twin = twin_of(network, "bfloat16")
    assert isinstance(twin, WideNetwork)
    flat = twin.flatten(dict(network.state_dict()))[None]
    x, pull, out = torch.randn(1, 2, 8, 8, 5), torch.randn(1, 3, 5), torch.empty_like(flat)
    with torch.no_grad():
        logits = twin.forward(twin.views(flat), x)
        twin.backward(twin.views(flat), pull, twin.views(out))
    with Bfloat16Convolutions():
        expected = network(x[0].movedim(-1, 0))
    expected.backward(pull[0].T)
    torch.testing.assert_close(logits[0].T, expected, rtol=ROUNDING, atol=ROUNDING / 10)
    for found, p in zip(twin.unflatten(out[0]).values(), network.parameters(), strict=True):
        assert p.grad is not None
        assert float((found - p.grad).norm() / p.grad.norm()) < 2 * ROUNDING
    assert not torch.equal(logits[0].T, network(x[0].movedim(-1, 0))), "and float32 is something else"


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return tiny_config.with_(
        "data.name=mnist-5k",
        "model.name=colour-cnn",
        "model.channels=8",
        "model.precision=bfloat16",
        "aggregation.rounds=1",
        "aggregation.batch_size=5000",
        "aggregation.lr=0.03",
    )


def test_both_engines_take_the_same_step_up_to_rounding(config: Config) -> None:
    start = job_of(config, prepare(config).federation).initial_model().state_dict()
    moved = {}
    for name in ("reference", "local"):
        for precision in ("bfloat16", "float32"):
            chosen = config.with_(f"engine.name={name}", f"model.precision={precision}", "method.name=supervised")
            model = run(chosen).model.state_dict()
            moved[name, precision] = torch.cat([(model[key] - start[key]).flatten() for key in start])

    def apart(one: tuple[str, str], other: tuple[str, str]) -> float:
        return float((moved[one] - moved[other]).norm() / moved[other].norm())

    assert apart(("local", "bfloat16"), ("reference", "bfloat16")) < ROUNDING
    assert ROUNDING < apart(("local", "bfloat16"), ("local", "float32")) < 0.05
    assert ROUNDING < apart(("reference", "bfloat16"), ("reference", "float32")) < 0.05


def test_bits_are_the_same_for_any_number_of_workers(config: Config) -> None:
    one, three = (
        run(config.with_(f"engine.workers={workers}", "aggregation.batch_size=100")).model.state_dict()
        for workers in (1, 3)
    )
    assert all(torch.equal(value, three[name]) for name, value in one.items())


def test_without_convolutions_nothing_changes(tiny_config: Config) -> None:
    plain = tiny_config.with_("model.name=mlp", "aggregation.rounds=1")
    one, other = (run(config).model.state_dict() for config in (plain, plain.with_("model.precision=bfloat16")))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
