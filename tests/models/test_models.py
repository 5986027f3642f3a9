"""The networks."""

from __future__ import annotations

import pytest
import torch

from fedpu.errors import ConfigError
from fedpu.models import MODELS, ColourCNN, OwnModel, PaperCNN, ResNet9


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)])
def test_every_model_maps_images_to_logits(name: str, shape: tuple[int, ...]) -> None:
    network = MODELS[name]().build(shape, 7)
    assert network(torch.randn(2, *shape)).shape == (2, 7)


def test_the_papers_network_has_its_layers() -> None:
    network = PaperCNN().build((1, 28, 28), 10)
    shapes = [tuple(p.shape) for p in network.parameters()]
    assert shapes == [(3, 1, 5, 5), (3,), (20, 3, 5, 5), (20,), (50, 320), (50,), (10, 50), (10,)]
    assert not any(isinstance(m, torch.nn.Dropout) for m in network.modules())
    with_dropout = PaperCNN(dropout=0.5).build((1, 28, 28), 10)
    assert sum(isinstance(m, torch.nn.Dropout | torch.nn.Dropout2d) for m in with_dropout.modules()) == 2
    assert [tuple(p.shape) for p in with_dropout.parameters()] == shapes


def test_norms_are_as_asked() -> None:
    group, batch = ResNet9(norm="group").build((3, 32, 32), 10), ResNet9(norm="batch").build((3, 32, 32), 10)
    assert not list(group.buffers())
    assert any(isinstance(m, torch.nn.BatchNorm2d) for m in batch.modules())
    assert any(isinstance(m, torch.nn.GroupNorm) for m in ColourCNN().build((3, 32, 32), 10).modules())


def test_augmented_images_are_mirrored_and_moved_copies_and_evaluation_sees_none() -> None:
    network = ColourCNN(augment=True).build((3, 32, 32), 10)
    layer = network[0]
    images = torch.rand(60, 3, 9, 7) + 1
    with torch.random.fork_rng():
        torch.manual_seed(0)
        changed = layer(images)
    found = set()
    for before, after in zip(images, changed, strict=True):
        fits = [
            (mirrored, down, right)
            for mirrored in (False, True)
            for down in range(9)
            for right in range(9)
            if torch.equal(moved(before.flip(2) if mirrored else before, down, right), after)
        ]
        assert fits, "an image became something else"
        found.add(fits[0])
    assert {mirrored for mirrored, _, _ in found} == {False, True}
    assert {down for _, down, _ in found} == {right for _, _, right in found} == set(range(9))
    assert torch.equal(network.eval()[0](images), images)
    assert [tuple(p.shape) for p in network.parameters()] == [
        tuple(p.shape) for p in ColourCNN().build((3, 32, 32), 10).parameters()
    ]
    assert ResNet9(augment=True).build((3, 32, 32), 7)(torch.randn(2, 3, 32, 32)).shape == (2, 7)


def moved(image: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """Cut an image's size out of one with a margin of four zeros."""
    wide = torch.zeros(3, 17, 15)
    wide[:, 4:13, 4:11] = image
    return wide[:, down : down + 9, right : right + 7]


def test_inputs_that_a_model_can_not_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 16×16 pixels; these inputs are 1×8×8"):
        PaperCNN().build((1, 8, 8), 10)
    with pytest.raises(ConfigError, match="mlp"):
        ColourCNN().build((30,), 2)


def test_a_users_own_model_is_imported(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def net(shape, classes):\n    return torch.nn.Linear(shape[0], classes)\n"
        "def wrong(shape, classes):\n    return 'not a module'\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert OwnModel(name="mine:net").build((5,), 3)(torch.randn(2, 5)).shape == (2, 3)
    with pytest.raises(ConfigError, match=r"must return a torch\.nn\.Module"):
        OwnModel(name="mine:wrong").build((5,), 3)
    with pytest.raises(ConfigError, match="Did you mean 'net'"):
        OwnModel(name="mine:nett").build((5,), 3)
    with pytest.raises(ConfigError, match="can't be imported"):
        OwnModel(name="no_such_module:net").build((5,), 3)
    with pytest.raises(ConfigError, match="not callable"):
        OwnModel(name="mine:number").build((5,), 3)
