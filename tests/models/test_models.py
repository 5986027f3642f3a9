"""The networks."""

from __future__ import annotations

import pytest
import torch

from fedpu.errors import ConfigError
from fedpu.models import MLP, MODELS, ColourCNN, OwnModel, PaperCNN, ResNet9, SmallResNet, Text
from fedpu.testing import check_model


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].takes_tokens])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_it_keeps_every_promise_of_a_model(name: str, shape: tuple[int, ...]) -> None:
    small = {"width": 8} if "width" in MODELS[name].model_fields else {}
    check_model(MODELS[name](**small), shape=shape)
    assert MODELS[name]().build(shape, 7)(torch.randn(2, *shape)).shape == (2, 7)


def test_networks_with_batchnorm_dropout_or_other_inputs_keep_them_too() -> None:
    check_model(ResNet9(norm="batch", width=8), shape=(3, 32, 32))
    check_model(PaperCNN(dropout=0.5))
    check_model(MLP(hidden=[]), shape=(30,))


def test_the_text_model_keeps_them_on_token_ids() -> None:
    check_model(Text(vocabulary=300), shape=(40,))
    with pytest.raises(ConfigError, match="takes a row of token ids per example; these inputs are 1×28×28"):
        Text().build((1, 28, 28), 10)


def test_padding_has_no_part_in_a_text() -> None:
    network = Text(vocabulary=9, embedding=4, units=5).build((6,), 3)
    short, long = torch.tensor([[3, 7, 0]]), torch.tensor([[0, 3, 0, 7, 0, 0]])
    assert torch.allclose(network(short), network(long))
    mean = network[0](torch.tensor([[3, 7, 0], [0, 0, 0]]))
    assert torch.allclose(mean[0], network[0].embedding.weight[[3, 7]].mean(dim=0))
    assert not mean[1].any()


def test_the_papers_network_has_its_layers() -> None:
    network = PaperCNN().build((1, 28, 28), 10)
    shapes = [tuple(p.shape) for p in network.parameters()]
    assert shapes == [(3, 1, 5, 5), (3,), (20, 3, 5, 5), (20,), (50, 320), (50,), (10, 50), (10,)]
    assert not any(isinstance(m, torch.nn.Dropout) for m in network.modules())
    with_dropout = PaperCNN(dropout=0.5).build((1, 28, 28), 10)
    assert sum(isinstance(m, torch.nn.Dropout | torch.nn.Dropout2d) for m in with_dropout.modules()) == 2
    assert [tuple(p.shape) for p in with_dropout.parameters()] == shapes


def test_fedmatchs_resnet_has_weights_alone_that_keep_the_signal() -> None:
    torch.manual_seed(0)
    network = ResNet9(norm="none").build((3, 32, 32), 10)
    shapes = [tuple(p.shape) for p in network.parameters()]
    widths = [(3, 64), (64, 128), (128, 128), (128, 128), (128, 256), (256, 512), (512, 512), (512, 512)]
    assert shapes == [*((after, before, 3, 3) for before, after in widths), (10, 512)]
    for weights in network.parameters():
        fan_in = weights.numel() // len(weights)
        assert weights.var().item() == pytest.approx(1 / fan_in, rel=0.1)
        assert weights.abs().max().item() <= 2 / 0.8796 * fan_in**-0.5 * 1.001


def test_norms_are_as_asked() -> None:
    group, batch = ResNet9(norm="group").build((3, 32, 32), 10), ResNet9(norm="batch").build((3, 32, 32), 10)
    assert not list(group.buffers())
    assert any(isinstance(m, torch.nn.BatchNorm2d) for m in batch.modules())
    assert any(isinstance(m, torch.nn.GroupNorm) for m in ColourCNN().build((3, 32, 32), 10).modules())


def test_inputs_that_a_model_can_not_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 16×16 pixels; these inputs are 1×8×8"):
        PaperCNN().build((1, 8, 8), 10)
    with pytest.raises(ConfigError, match="mlp"):
        ColourCNN().build((30,), 2)


def test_a_users_own_model_is_imported(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a_users_net.py").write_text(
        "import torch\n"
        "def net(shape, classes):\n    return torch.nn.Linear(shape[0], classes)\n"
        "def wrong(shape, classes):\n    return 'not a module'\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert OwnModel(name="a_users_net:net").build((5,), 3)(torch.randn(2, 5)).shape == (2, 3)
    with pytest.raises(ConfigError, match=r"must return a torch\.nn\.Module"):
        OwnModel(name="a_users_net:wrong").build((5,), 3)
    with pytest.raises(ConfigError, match="Did you mean 'net'"):
        OwnModel(name="a_users_net:nett").build((5,), 3)
    with pytest.raises(ConfigError, match="can't be imported"):
        OwnModel(name="no_such_module:net").build((5,), 3)
    with pytest.raises(ConfigError, match="not callable"):
        OwnModel(name="a_users_net:number").build((5,), 3)


def test_filters_of_the_small_resnet_are_standardised_whatever_its_weights_are() -> None:
    torch.manual_seed(0)
    layer = SmallResNet(width=8).build((3, 32, 32), 10)[0]
    images = torch.randn(2, 3, 32, 32)
    weights = layer.weight.detach().clone()
    before = layer(images)
    with torch.no_grad():
        layer.weight.copy_(3 * weights + torch.randn(8, 1, 1, 1))
    assert torch.allclose(layer(images), before, atol=1e-3)
    rows = torch.nn.functional.unfold(images, 4, padding=1, stride=2)
    standard = torch.stack([(w - w.mean()) / (w - w.mean()).norm() for w in weights.flatten(1)])
    assert torch.allclose(before.flatten(2), 2**0.5 * standard @ rows, atol=1e-3)
