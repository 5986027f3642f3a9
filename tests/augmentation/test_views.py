"""Views, the table [augmentation], and what became of ``model.augment``."""

from __future__ import annotations

import pickle
import tomllib

import pytest
import torch
from torch import Tensor

from fedpu.augmentation import TRANSFORMS, VIEWS, Augmentation, Drawn, Transform, View, join
from fedpu.augmentation import settings as settings_module
from fedpu.config import Config, default_file
from fedpu.errors import ConfigError
from fedpu.randomness import torch_generator
from fedpu.registry import Registry

EVERY_FOR_IMAGES = ["mirror", "shift", "affine", "colour", "noise", "feature-dropout", "cutout"]


def drawing(*keys: int) -> torch.Generator:
    return torch_generator(0, "test", *keys)


def test_without_a_word_every_view_is_the_inputs_themselves() -> None:
    inputs = torch.randn(3, 4)
    for name in VIEWS:
        view = Augmentation().view(name)
        assert not view
        assert view.draw(3, (4,), drawing()) == {}
        assert view.apply(inputs, {}) is inputs
    assert not Augmentation(weak=["mirror"], strong=["cutout"]).view("clean")


def test_a_view_is_its_transforms_one_after_the_other() -> None:
    augmentation = Augmentation(weak=["shift", "mirror"], strong=EVERY_FOR_IMAGES)
    assert augmentation.view("weak")
    images, view = torch.randn(20, 3, 12, 10), augmentation.view("strong")
    drawn = view.draw(20, (3, 12, 10), drawing())
    generator, expected = drawing(), images
    for name in EVERY_FOR_IMAGES:
        transform = TRANSFORMS[name](augmentation)
        expected = transform.apply(expected, transform.draw(20, (3, 12, 10), generator))
    assert torch.equal(view.apply(images, drawn), expected)


def test_a_transform_may_be_there_twice() -> None:
    view = Augmentation(strong=["cutout", "cutout"]).view("strong")
    drawn = view.draw(1, (1, 8, 8), drawing())
    assert len(drawn) == 2
    assert not torch.equal(*drawn.values())


@pytest.mark.parametrize("padded", [False, True])
def test_clients_share_a_batch(padded: bool) -> None:
    shape, sizes = (1, 8, 8), [5, 3, 5]
    view = Augmentation(weak=EVERY_FOR_IMAGES, random_magnitude=True).view("weak")
    parts = [torch.randn(size, *shape) for size in sizes]
    drawn = [view.draw(size, shape, drawing(client)) for client, size in enumerate(sizes)]
    batch = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True).flatten(0, 1) if padded else torch.cat(parts)
    changed = view.apply(batch, join(drawn, padded=padded)).split([5] * 3 if padded else sizes)
    for part, own, together in zip(parts, drawn, changed, strict=True):
        torch.testing.assert_close(together[: len(part)], view.apply(part, own), rtol=1e-6, atol=1e-6)


def test_a_view_goes_to_other_processes_and_into_inference_mode() -> None:
    view = Augmentation(weak=EVERY_FOR_IMAGES).view("weak")
    images, drawn = torch.randn(4, 1, 8, 8), view.draw(4, (1, 8, 8), drawing())
    expected = view.apply(images, drawn)
    assert torch.equal(pickle.loads(pickle.dumps(view)).apply(images, drawn), expected)
    with torch.inference_mode():
        assert torch.equal(view.apply(images, drawn), expected)


def test_shapes_that_a_view_can_not_change_are_refused() -> None:
    Augmentation(weak=["noise"], strong=["feature-dropout"]).check((30,))
    Augmentation(weak=EVERY_FOR_IMAGES).check((3, 32, 32))
    with pytest.raises(ConfigError, match=r"Cutout in \[augmentation\] changes images"):
        Augmentation(weak=["noise"], strong=["noise", "cutout"]).check((30,))


def test_a_view_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no view 'week'\. Did you mean 'weak'\? Views: clean, weak, strong\."):
        Augmentation().view("week")


class Negative(Transform):
    """A user's own transform: some images become their negatives."""

    def draw(self, count: int, shape: tuple[int, ...], generator: torch.Generator) -> Drawn:
        return {"sign": torch.randint(2, (count,), generator=generator) * 2.0 - 1}

    def apply(self, inputs: Tensor, drawn: Drawn) -> Tensor:
        return inputs * drawn["sign"].view(-1, *[1] * (inputs.dim() - 1))


class Crop(Negative):
    """A transform that makes images smaller, which no view may."""

    def apply(self, inputs: Tensor, drawn: Drawn) -> Tensor:
        return inputs[..., 1:-1, 1:-1]


def test_a_transform_that_changes_the_shape_of_a_batch_is_named() -> None:
    with pytest.raises(ConfigError, match="returned a batch of shape 2×1×6×6 where it was given 2×1×8×8"):
        View((Crop(Augmentation()),)).apply(torch.zeros(2, 1, 8, 8), {})


def test_a_users_own_transform_is_looked_up_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    augmentation = Config.load(overrides=['augmentation.weak=["mine:Negative", "shift"]']).augmentation
    known = Registry("transform", dict(TRANSFORMS.items()) | {"mine:Negative": Negative})
    monkeypatch.setattr(settings_module, "TRANSFORMS", known)
    augmentation.check((1, 8, 8))
    view = augmentation.view("weak")
    assert view == View(view.transforms)
    images = torch.rand(50, 1, 8, 8) + 1
    changed = view.apply(images, view.draw(50, (1, 8, 8), drawing()))
    assert {-1.0, 1.0} == set(changed.sign().unique().tolist())
    assert augmentation.without_unused() is augmentation


def test_the_table_is_part_of_the_configuration_and_lists_the_transforms() -> None:
    config = Config.load(
        overrides=['augmentation.weak=["mirror", "shift"]', "augmentation.shift=2", "augmentation.degrees=10"]
    )
    assert config.augmentation == Augmentation(weak=["mirror", "shift"], shift=2, degrees=10.0)
    assert Config.from_dict(tomllib.loads(config.to_toml())) == config
    text = default_file().partition("[augmentation]")[2].partition("\n[")[0]
    for name, kind in TRANSFORMS.items():
        assert name in text
        for key in kind.keys:
            assert f"\n{key} = " in text


WRONG = {
    'augmentation.weak=["shfit"]': r"augmentation\.weak = .*no transform called 'shfit'\. Did you mean 'shift'\?",
    "augmentation.weak=shift": r"augmentation\.weak = 'shift' can't be used: it should be a valid (array|list)",
    "augmentation.shift=-1": r"augmentation\.shift = -1",
    "augmentation.shift=1.5": r"augmentation\.shift = 1\.5",
    "augmentation.border=white": r"augmentation\.border = 'white'.*'edge' or 'mean'",
    "augmentation.cutout=2": r"augmentation\.cutout = 2",
    "augmentation.rotation=2": r"no setting 'augmentation\.rotation'.*degrees",
}


@pytest.mark.parametrize(("override", "message"), WRONG.items(), ids=WRONG)
def test_what_the_table_can_not_hold_is_explained(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Config.load(overrides=[override])
    assert "\n" not in str(caught.value)


def test_numbers_that_no_view_reads_make_no_other_result() -> None:
    plain = Config()
    assert plain.gives_same_as(plain.with_("augmentation.shift=2", "augmentation.random_magnitude=true"))
    shifted = plain.with_('augmentation.weak=["mirror", "shift"]')
    assert not plain.gives_same_as(shifted)
    assert not shifted.gives_same_as(plain.with_('augmentation.strong=["mirror", "shift"]'))
    assert not shifted.gives_same_as(shifted.with_("augmentation.shift=2"))
    assert not shifted.gives_same_as(shifted.with_("augmentation.random_magnitude=true"))
    assert shifted.gives_same_as(shifted.with_("augmentation.degrees=2"))
    mirrored = plain.with_('augmentation.weak=["mirror"]')
    assert mirrored.gives_same_as(mirrored.with_("augmentation.random_magnitude=true"))


def test_the_former_key_names_the_new_ones(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "config.toml"
    for value in ("true", "false"):
        file.write_text(f'[model]\nname = "colour-cnn"\nchannels = 16\naugment = {value}\n')
        with pytest.raises(
            ConfigError, match=r"model\.augment is no longer a setting.*augmentation\.weak = \["
        ) as caught:
            Config.load(file)
        assert "\n" not in str(caught.value)
    said = str(caught.value)
    wanted = [f"augmentation.{key}" for key in ("weak", "shift", "border")]
    assert all(key in said for key in wanted)


def test_every_method_of_cifars_first_table_sees_the_same_views() -> None:
    views = ["mirror", "shift", "colour", "cutout"]
    for method in ("fedpu", "positive-only", "labelled-only", "labelled-only-views", "supervised", "conventional-pu"):
        config = Config.load(preset=f"table4-row1-{method}-cpu")
        assert config.augmentation == Augmentation(weak=views, shift=4, border="mean", random_magnitude=True)
    assert Config.load(preset="table4-row1-aligned-cpu").augmentation.strong == views
    assert Config.load(preset="table4-row1-fedpu").augmentation == Augmentation()
