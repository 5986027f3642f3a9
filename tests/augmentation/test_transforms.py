"""What every transform does: the contract of the two halves, a twin for each, and distributions."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

from augmentation import twins
from fedpu.augmentation import TRANSFORMS, Augmentation, ImageTransform
from fedpu.data import DataSettings, load
from fedpu.errors import ConfigError
from fedpu.native import kernels
from fedpu.randomness import torch_generator


def is_compiled(name: str) -> bool:
    """Has it a compiled kernel beside PyTorch's operations?"""
    return hasattr(sys.modules[TRANSFORMS[name].__module__], "kernels_for")


SHAPES = [(1, 9, 7), (3, 8, 11), (30,)]
CASES = [
    (name, shape)
    for name, kind in TRANSFORMS.items()
    for shape in SHAPES
    if len(shape) == 3 or not issubclass(kind, ImageTransform)
]
cases = pytest.mark.parametrize(("name", "shape"), CASES, ids=lambda value: str(value))


def drawing(*keys: int) -> torch.Generator:
    return torch_generator(0, "test", *keys)


def some(count: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(count, *shape, generator=drawing(count))


@pytest.mark.parametrize(
    ("name", "shape", "compiled"),
    [(*case, compiled) for case in CASES for compiled in ((False, True) if is_compiled(case[0]) else (False,))],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("random_magnitude", [False, True])
@pytest.mark.parametrize("border", ["edge", "mean"])
def test_it_does_what_its_twin_does(
    name: str,
    shape: tuple[int, ...],
    random_magnitude: bool,
    border: str,
    compiled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if compiled and kernels().library is None:
        pytest.skip(kernels().described)
    if is_compiled(name) and not compiled:
        monkeypatch.setattr(sys.modules[TRANSFORMS[name].__module__], "kernels_for", lambda inputs: None)
    settings = Augmentation(
        shift=3, border=border, degrees=50, stretch=0.5, shear=0.4, cutout=0.6, random_magnitude=random_magnitude
    )
    transform, inputs = TRANSFORMS[name](settings), some(40, shape)
    transform.check(shape)
    drawn = transform.draw(40, shape, drawing(1))
    before = inputs.clone()
    after = transform.apply(inputs, drawn)
    assert torch.equal(inputs, before)
    assert after.dtype == torch.float32
    assert not torch.equal(after, before)
    rows = zip(inputs.numpy(), drawn["numbers"].numpy(), strict=True)
    expected = np.stack([twins.changed(name, image, numbers, settings) for image, numbers in rows])
    np.testing.assert_allclose(after.numpy(), expected, atol=2e-4)


@cases
def test_its_draws_depend_on_the_generator_alone_and_the_first_rows_not_on_their_number(
    name: str, shape: tuple[int, ...]
) -> None:
    for random_magnitude in (False, True):
        transform = TRANSFORMS[name](Augmentation(random_magnitude=random_magnitude))
        many = transform.draw(40, shape, drawing(1))
        few = transform.draw(7, shape, drawing(1))
        other = transform.draw(7, shape, drawing(2))
        state = torch.random.get_rng_state()
        for key, value in many.items():
            assert len(value) == 40
            assert torch.equal(few[key], value[:7])
            assert not torch.equal(few[key], other[key])
        transform.apply(some(7, shape), few)
        assert torch.equal(torch.random.get_rng_state(), state), "applying is not random"


@cases
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_clients_may_be_changed_together(name: str, shape: tuple[int, ...], sizes: list[int], seed: int) -> None:
    transform = TRANSFORMS[name](Augmentation(random_magnitude=bool(seed % 2)))
    parts = [some(size, shape) for size in sizes]
    drawn = [transform.draw(size, shape, drawing(seed, client)) for client, size in enumerate(sizes)]
    alone = torch.cat([transform.apply(part, own) for part, own in zip(parts, drawn, strict=True)])
    together = transform.apply(torch.cat(parts), {key: torch.cat([own[key] for own in drawn]) for key in drawn[0]})
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-6)


@cases
@given(seed=st.integers(0, 1000))
def test_a_strength_of_nothing_changes_nothing(name: str, shape: tuple[int, ...], seed: int) -> None:
    if name == "mirror":
        return
    nothing = Augmentation(
        **dict.fromkeys(
            ["degrees", "stretch", "shear", "cutout", "brightness", "contrast", "feature_dropout", "noise"], 0.0
        ),
        shift=0,
    )
    inputs = some(5, shape)
    for settings in (nothing, Augmentation(random_magnitude=True)):
        transform = TRANSFORMS[name](settings)
        drawn = transform.draw(5, shape, drawing(seed))
        if settings.random_magnitude:
            drawn["numbers"][:, -1] = 0
        torch.testing.assert_close(transform.apply(inputs, drawn), inputs, rtol=1e-5, atol=1e-5)


@given(
    height=st.integers(2, 9), width=st.integers(2, 9), channels=st.integers(1, 3), shift=st.integers(0, 8),
    border=st.sampled_from(["edge", "mean"]), seed=st.integers(0, 1000),
)  # fmt: skip
def test_images_of_any_size_are_moved_within_the_limit(
    height: int, width: int, channels: int, shift: int, border: str, seed: int
) -> None:
    shape = (channels, height, width)
    transform = TRANSFORMS["shift"](Augmentation(shift=shift, border=border))
    if shift >= min(height, width):
        with pytest.raises(ConfigError, match=f"shift = {shift} would move images of {height}×{width} pixels out"):
            transform.check(shape)
        return
    images = some(4, shape)
    distances = range(-shift, shift + 1)
    for before, after in zip(images, transform.apply(images, transform.draw(4, shape, drawing(seed))), strict=True):
        assert any(
            np.array_equal(twins.moved(before.numpy(), down, right, border), after.numpy())
            for down in distances
            for right in distances
        )


def old_augmentation(images: Tensor) -> Tensor:
    """Mirror and move as ``model.augment`` did, until the table [augmentation] took its place."""
    count, channels, height, width = images.shape
    mirrored = torch.rand(count) < 0.5
    down, right = torch.randint(9, (2, count, 1))
    rows = torch.arange(height) + down
    columns = torch.arange(width)
    columns = torch.where(mirrored[:, None], columns.flip(0), columns) + right
    padded = pad(images, (4, 4, 4, 4))
    places = rows[:, :, None] * padded.shape[-1] + columns[:, None, :]
    return padded.flatten(2).gather(2, places.view(count, 1, -1).expand(-1, channels, -1)).view(images.shape)


def test_mirror_and_shift_have_the_distribution_of_the_former_model_augment() -> None:
    """There are 2 · 9 · 9 outcomes for an image: the same ones, each as likely as before."""
    count = 16_200
    image = torch.randn(3, 11, 10, generator=drawing())
    images = image.expand(count, -1, -1, -1)
    view = Augmentation(weak=["mirror", "shift"], shift=4, border="mean").view("weak")
    ours = view.apply(images, view.draw(count, (3, 11, 10), drawing()))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = old_augmentation(images)
    counts = []
    for changed in (ours, theirs):
        outcomes, times = changed.flatten(1).unique(dim=0, return_counts=True)
        assert len(outcomes) == 162
        # χ² with 161 degrees of freedom has mean 161 and deviation 18.
        assert float(((times - count / 162) ** 2 / (count / 162)).sum()) < 161 + 4 * 18
        counts.append(outcomes)
    assert torch.equal(*counts)


def test_strengths_are_spread_as_the_page_says() -> None:
    count = 4000

    def numbers(name: str, shape: tuple[int, ...], **keys: object) -> tuple[Tensor, Tensor]:
        transform = TRANSFORMS[name](Augmentation(**keys))
        inputs = torch.ones(count, *shape)
        return inputs, transform.apply(inputs, transform.draw(count, shape, drawing()))

    _, dropped = numbers("feature-dropout", (50,), feature_dropout=0.3)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.005)
    _, dropped = numbers("feature-dropout", (50,), feature_dropout=0.3, random_magnitude=True)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.15, abs=0.005)
    shares = (dropped == 0).float().mean(dim=1)
    assert float(shares.std()) > 0.08, "each example has its own share"

    inputs, noisy = numbers("noise", (50,), noise=0.4)
    noise = noisy - inputs
    assert float(noise.mean()) == pytest.approx(0, abs=0.004)
    assert float(noise.std()) == pytest.approx(0.4, abs=0.004)
    assert float((noise.abs() < 0.4).float().mean()) == pytest.approx(math.erf(math.sqrt(0.5)), abs=0.005)

    _, bright = numbers("colour", (1, 4, 4), brightness=0.8)
    added = bright.mean(dim=(1, 2, 3)) - 1
    assert float(added.abs().max()) == pytest.approx(0.8, abs=0.01)
    assert float(added.mean()) == pytest.approx(0, abs=0.03)

    _, cut = numbers("cutout", (1, 20, 20), cutout=0.5)
    hidden = (cut == 0).sum(dim=(1, 2, 3))
    assert int(hidden.max()) == 100, "ten by ten pixels of twenty by twenty"
    assert 25 <= int(hidden.min()) < 36, "a quarter of the square where its centre is in a corner"


def test_noise_is_finite_whatever_is_drawn() -> None:
    transform = TRANSFORMS["noise"](Augmentation())
    lowest, highest = 0.0, 1 - 2**-24
    numbers = torch.tensor([[lowest, highest, 0.5]])
    changed = transform.apply(torch.zeros(1, 3), {"numbers": numbers})
    assert changed.isfinite().all()
    assert float(changed[0, 2]) == 0
    assert torch.equal(changed[0, 0], -changed[0, 1])


def test_the_highest_number_is_within_the_limit_of_every_shift() -> None:
    for shift in range(60):
        transform = TRANSFORMS["shift"](Augmentation(shift=shift, border="mean"))
        image = torch.arange(64.0 * 64).view(1, 1, 64, 64) + 1
        for number, distance in ((0.0, -shift), (1 - 2**-24, shift)):
            moved = transform.apply(image, {"numbers": torch.full((1, 2), number)})
            assert np.array_equal(moved[0].numpy(), twins.moved(image[0].numpy(), distance, distance, "mean"))


def test_a_rotation_by_a_quarter_and_a_shift_are_exact() -> None:
    image = torch.arange(1.0, 10).view(1, 1, 3, 3)
    turned = TRANSFORMS["affine"](Augmentation(degrees=90, shift=0)).apply(
        image, {"numbers": torch.tensor([[1.0, 0.5, 0.5, 0.5, 0.5, 0.5]])}
    )
    torch.testing.assert_close(turned[0, 0], image[0, 0].rot90(-1), rtol=0, atol=1e-4)  # clockwise
    moved = TRANSFORMS["affine"](Augmentation(shift=1, border="mean")).apply(
        image, {"numbers": torch.tensor([[0.5, 0.5, 0.5, 0.5, 1.0, 0.0]])}
    )
    np.testing.assert_allclose(moved[0], twins.moved(image[0].numpy(), 1, -1, "mean"), atol=1e-4)


@pytest.mark.parametrize("name", [name for name, kind in TRANSFORMS.items() if issubclass(kind, ImageTransform)])
def test_a_table_is_not_moved_or_cut(name: str) -> None:
    with pytest.raises(ConfigError, match=r"changes images .* have the shape 30\. 'feature-dropout' and 'noise'"):
        TRANSFORMS[name](Augmentation()).check((30,))


def test_images_can_not_be_moved_out_of_sight() -> None:
    for name in ("shift", "affine"):
        with pytest.raises(ConfigError, match=r"augmentation\.shift = 8 would move images of 8×8 pixels.*at most 7"):
            TRANSFORMS[name](Augmentation(shift=8)).check((1, 8, 8))


@cases
def test_inputs_may_be_part_of_other_tensors(name: str, shape: tuple[int, ...]) -> None:
    whole = some(9, shape)
    turned = whole.transpose(0, -1).contiguous().transpose(0, -1)
    for settings in (Augmentation(), Augmentation(shift=0)):
        transform = TRANSFORMS[name](settings)
        drawn = transform.draw(5, shape, drawing())
        expected = transform.apply(whole[2:7].clone(), drawn)
        torch.testing.assert_close(transform.apply(whole[2:7], drawn), expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(transform.apply(turned[2:7], drawn), expected, rtol=1e-6, atol=1e-6)


@cases
def test_an_empty_batch_stays_empty(name: str, shape: tuple[int, ...]) -> None:
    transform = TRANSFORMS[name](Augmentation())
    assert transform.apply(torch.empty(0, *shape), transform.draw(0, shape, drawing())).shape == (0, *shape)


def test_real_digits_keep_their_ink_when_they_are_moved_a_little() -> None:
    data = load(DataSettings(name="mnist-5k"))
    images = data.normalisation(data.inputs[:200])
    transform = TRANSFORMS["shift"](Augmentation(shift=2))
    moved = transform.apply(images, transform.draw(200, data.shape, drawing()))
    assert not torch.equal(moved, images)
    ink = [(part - images.min()).sum(dim=(1, 2, 3)) for part in (images, moved)]
    assert float((ink[1] / ink[0] - 1).abs().mean()) < 0.01
