"""What a data set accepts, how it is stored, and what it says about data that it can't take."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpu.data import Dataset, Normalisation
from fedpu.errors import DataError

LABELS = np.arange(20) % 2


def vectors(n: int = 20) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 4))


@pytest.mark.parametrize(
    ("given_shape", "stored_shape"),
    [
        ((20, 4), (4,)),
        ((20, 5, 6), (1, 5, 6)),
        ((20, 5, 6, 3), (3, 5, 6)),
        ((20, 5, 6, 1), (1, 5, 6)),
        ((20, 3, 5, 6), (3, 5, 6)),
    ],
)
def test_inputs_are_stored_channels_first(given_shape, stored_shape):
    data = Dataset.from_arrays(np.zeros(given_shape, np.uint8), LABELS)
    assert data.shape == stored_shape
    assert data.inputs.dtype == torch.uint8


def test_a_pixel_keeps_its_place_when_channels_move_first():
    x = np.random.default_rng(0).integers(0, 256, (20, 5, 6, 3)).astype(np.uint8)
    data = Dataset.from_arrays(x, LABELS, x_test=x, y_test=LABELS)
    assert data.inputs[7, 2, 3, 4] == x[7, 3, 4, 2]


def test_memory_that_may_not_be_written_is_copied():
    x = np.frombuffer(bytes(range(80)), np.uint8).reshape(20, 4)
    data = Dataset.from_arrays(x, LABELS, x_test=x, y_test=LABELS)
    data.inputs.zero_()
    assert x[1, 0] == 4


def test_tensors_and_lists_are_taken_like_arrays():
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    assert Dataset.from_arrays(x, LABELS.tolist()).inputs.dtype == torch.float32


@given(fraction=st.floats(0.05, 0.95), per_class=st.integers(2, 40))
def test_the_held_out_share_is_fixed_and_stratified(fraction, per_class):
    x, y = np.arange(3 * per_class, dtype=float)[:, None], np.repeat([0, 1, 2], per_class)
    first = Dataset.from_arrays(x, y, test_fraction=fraction)
    again = Dataset.from_arrays(x, y, test_fraction=fraction)
    assert torch.equal(first.test_inputs, again.test_inputs)
    assert sorted(torch.cat([first.inputs, first.test_inputs]).flatten().tolist()) == x.flatten().tolist()
    counts = first.test_labels.bincount(minlength=3)
    assert (counts == min(max(round(fraction * per_class), 1), per_class - 1)).all()


def test_examples_that_nobody_labelled_stay_in_training():
    y = np.array([0, 1, -1, -1] * 10)
    data = Dataset.from_arrays(vectors(40), y)
    assert (data.labels == -1).sum() == 20
    assert (data.test_labels >= 0).all()


def test_clients_are_numbered_by_their_sorted_names():
    owners = np.array(["b", "a"] * 10)
    data = Dataset.from_arrays(vectors(), LABELS, x_test=vectors(), y_test=LABELS, client=owners)
    assert data.client is not None
    assert data.client.tolist() == [1, 0] * 10


def test_measured_normalisation_gives_mean_0_and_deviation_1_per_feature():
    x = np.random.default_rng(0).normal([5, -3], [2, 0.1], size=(3000, 2))
    data = Dataset.from_arrays(x, np.arange(3000) % 2)
    normal = data.normalisation(data.inputs)
    assert torch.allclose(normal.mean(0), torch.zeros(2), atol=1e-4)
    assert torch.allclose(normal.std(0, correction=0), torch.ones(2), atol=1e-4)


def test_a_constant_feature_is_normalised_to_zero():
    data = Dataset.from_arrays(np.full((20, 2), 7.0), LABELS)
    assert data.normalisation(data.inputs).abs().max() == 0


def test_bytes_are_scaled_to_1_before_they_are_normalised():
    normal = Normalisation(1 / 255, (0.5,), (0.25,))(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    assert normal.flatten().tolist() == pytest.approx([-2, 2])


NAN = np.where(np.arange(80).reshape(20, 4) == 13, np.nan, 1.0)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x": NAN}, r"x has values that are NaN or infinite in 1 examples \(the first is example 3\)"),
        ({"x": vectors() * 1e300}, "NaN or infinite"),
        ({"x": vectors() > 0}, "must hold numbers"),
        ({"x": np.zeros(20)}, "must hold examples along its first dimension"),
        ({"x": np.zeros((20, 0))}, "must hold examples along its first dimension"),
        ({"x": np.zeros((20, 1, 2, 3, 4))}, "has 5 dimensions"),
        ({"x": [[1.0, 2.0], [3.0]]}, "ragged"),
        ({"x": vectors(19)}, "x has 19, y has 20"),
        ({"y": LABELS + 0.5}, "whole class numbers"),
        ({"y": np.eye(2)[LABELS]}, "one class number an example"),
        ({"y": LABELS - 2}, "out of range: example 0 has -2"),
        ({"y": LABELS * 2}, "no training example has class 1"),
        ({"y": LABELS * 0}, "fewer than two classes"),
        ({"y": LABELS * 0 - 1}, "no labelled example is left to test on"),
        ({"classes": ["only"]}, "fewer than two classes"),
        ({"classes": ["a", "a"]}, "the same name"),
        ({"x_test": vectors()}, "x_test was given without y_test"),
        ({"y_test": LABELS}, "y_test was given without x_test"),
        ({"x_test": np.zeros((20, 5)), "y_test": LABELS}, r"shape \(4,\) and test examples \(5,\)"),
        ({"x_test": np.zeros((20, 4), np.uint8), "y_test": LABELS}, "stored as torch.float32"),
        ({"x_test": vectors(), "y_test": LABELS - 1}, "test labels must all be known"),
        ({"x_test": vectors(), "y_test": LABELS + 1}, "a test label is out of range: 2"),
        ({"client": np.zeros(3)}, "client has 3"),
        ({"client": np.array([None] * 20)}, "client must hold numbers or strings"),
        ({"test_fraction": 1.5}, "between 0 and 1; it is 1.5"),
    ],
)
def test_data_that_cannot_be_used_are_refused_in_a_sentence(changed, told):
    with pytest.raises(DataError, match=told):
        Dataset.from_arrays(**{"x": vectors(), "y": LABELS} | changed)
