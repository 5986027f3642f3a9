"""A user's own data: arrays in a file, images in folders, and inputs to predict on."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from PIL import Image

from fedpu.data import DataSettings, load, read_inputs
from fedpu.errors import DataError

X = np.random.default_rng(0).integers(0, 256, (20, 6, 5)).astype(np.uint8)
Y = np.arange(20) % 2


def own(path, **settings):
    return load(DataSettings(name=str(path), **settings))


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "own.npz", **arrays)
        return tmp_path / "own.npz"

    return write


@pytest.fixture
def folder(tmp_path):
    """Five grey images of cats and five of dogs."""
    for number in range(5):
        save(tmp_path / "pets" / "dog" / f"{number}.png", X[number])
        save(tmp_path / "pets" / "cat" / f"{number}.bmp", X[number + 5])
    return tmp_path / "pets"


def test_an_npz_of_x_and_y_is_split_by_the_fraction(npz):
    data = own(npz(x=X, y=Y), test_fraction=0.4)
    assert (len(data.labels), len(data.test_labels)) == (12, 8)
    assert data.shape == (1, 6, 5)
    assert data.classes == ("0", "1")
    assert data.name == "own.npz"


def test_an_npz_may_have_a_test_set_clients_and_names(npz):
    data = own(npz(x=X, y=Y, x_test=X[:4], y_test=Y[:4], client=Y, classes=np.array(["ham", "spam"]), more=X))
    assert (len(data.labels), len(data.test_labels)) == (20, 4)
    assert data.classes == ("ham", "spam")
    assert data.client is not None
    assert data.client.tolist() == Y.tolist()


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"x": X, "label": Y}, r"has no array 'y'; it has 'x', 'label'"),
        ({}, r"has no array 'x', 'y'; it has none at all"),
        ({"x": X, "y": np.array([None] * 20)}, r"array 'y' of .*own.npz holds Python objects"),
        ({"x": X, "y": Y[:3]}, r"own.npz: the arrays must have one entry an example, but x has 20, y has 3"),
    ],
)
def test_an_npz_that_cannot_be_used_is_told(arrays, told, npz):
    with pytest.raises(DataError, match=told):
        own(npz(**arrays))


def test_files_that_are_no_npz_are_told(tmp_path, npz):
    with pytest.raises(DataError, match=r"There is no file .*absent.npz"):
        own(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("not at all")
    with pytest.raises(DataError, match=r"text.npz is not a .npz file or is damaged"):
        own(tmp_path / "text.npz")
    whole = npz(x=X, y=Y).read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"cut.npz is not a .npz file or is damaged"):
        own(tmp_path / "cut.npz")
    with open(tmp_path / "single.npz", "wb") as file:
        np.save(file, X)
    with pytest.raises(DataError, match=r"single.npz is not a .npz file"):
        own(tmp_path / "single.npz")


def test_an_npz_with_a_flipped_byte_is_told(npz):
    path = npz(x=X, y=Y)
    damaged = bytearray(path.read_bytes())
    damaged[400] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="is damaged"):
        own(path)


def test_a_folder_has_a_class_a_folder_in_the_order_of_their_names(folder):
    data = own(folder)
    assert data.classes == ("cat", "dog")
    assert data.labels.bincount().tolist() == [4, 4]
    assert data.shape == (1, 6, 5)
    stored = torch.cat([data.inputs, data.test_inputs])
    assert any(torch.equal(image[0], torch.from_numpy(X[7])) for image in stored)


def test_a_folder_may_be_split_into_train_and_test(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for cls in ("bus", "train"):
            for number in range(count):
                save(tmp_path / part / cls / f"{number}.png", X[number])
    data = own(tmp_path)
    assert data.classes == ("bus", "train")
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.test_labels.tolist() == [0, 0, 1, 1]
    assert torch.equal(data.test_inputs[1, 0], torch.from_numpy(X[1]))


def test_one_colour_image_makes_all_rgb(folder):
    save(folder / "cat" / "red.png", np.full((6, 5, 3), (255, 0, 0), np.uint8))
    data = own(folder)
    assert data.shape == (3, 6, 5)
    stored = torch.cat([data.inputs, data.test_inputs])
    grey = [image for image in stored if torch.equal(image[0], image[1])]
    assert len(grey) == 10


def test_images_of_different_sizes_need_a_size(folder):
    save(folder / "dog" / "large.png", np.zeros((12, 9), np.uint8))
    with pytest.raises(DataError, match=r"6×5 and .*large.png is 12×9. Set data.image_size = \[height, width\]"):
        own(folder)
    assert own(folder, image_size=(4, 3)).shape == (1, 4, 3)


def test_sixteen_bits_of_grey_are_scaled_to_eight(tmp_path):
    Image.fromarray(np.array([[0, 257 * 100, 65535]], np.uint16)).save(tmp_path / "deep.png")
    assert read_inputs(tmp_path / "deep.png").inputs.flatten().tolist() == [0, 100, 255]


def test_files_beside_the_images_are_left_alone(folder):
    (folder / "notes.txt").write_text("about the pets")
    (folder / "cat" / "Thumbs.db").write_text("no image")
    (folder / ".cache").mkdir()
    assert own(folder).classes == ("cat", "dog")


def test_a_folder_that_cannot_be_used_is_told(folder, tmp_path):
    (folder / "bird").mkdir()
    with pytest.raises(DataError, match=r"folder .*bird has no images"):
        own(folder)
    (folder / "bird" / "0.png").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"image .*0.png can't be read"):
        own(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty has no folder for a class. Expected: <folder>/<class>/<image>"):
        own(tmp_path / "empty")


def test_an_image_cut_short_is_told(folder):
    path = folder / "dog" / "0.png"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"image .*0.png can't be read"):
        own(folder)


def test_a_test_class_that_is_not_trained_on_is_told(tmp_path):
    save(tmp_path / "train" / "a" / "0.png", X[0])
    save(tmp_path / "test" / "b" / "0.png", X[0])
    with pytest.raises(DataError, match=r"test has the class 'b', which .*train doesn't have"):
        own(tmp_path)
    (tmp_path / "val").mkdir()
    with pytest.raises(DataError, match="has 'val' beside train and test"):
        own(tmp_path)


def test_inputs_come_from_arrays_with_row_numbers_for_names(npz, tmp_path):
    found = read_inputs(npz(x=X))
    assert torch.equal(found.inputs[:, 0], torch.from_numpy(X))
    assert found.names[:3] == ("0", "1", "2")
    np.save(tmp_path / "x.npy", X.reshape(20, -1) / 255)
    assert read_inputs(tmp_path / "x.npy").inputs.dtype == torch.float32


def test_inputs_come_from_an_image_or_from_folders_at_any_depth(folder):
    assert read_inputs(folder / "dog" / "3.png").names == ("3.png",)
    found = read_inputs(folder, image_size=(8, 8), channels=3)
    assert found.inputs.shape == (10, 3, 8, 8)
    assert found.names[0] == "cat/0.bmp"
    save(folder / "cat" / "red.png", np.full((6, 5, 3), (255, 0, 0), np.uint8))
    assert read_inputs(folder, channels=1).inputs.shape == (11, 1, 6, 5)


def test_inputs_that_cannot_be_read_are_told(tmp_path, npz):
    with pytest.raises(DataError, match="There is no file or folder"):
        read_inputs(tmp_path / "absent.png")
    with pytest.raises(DataError, match="has no array 'x'; it has 'y'"):
        read_inputs(npz(y=Y))
    (tmp_path / "x.txt").write_text("1 2 3")
    with pytest.raises(DataError, match=r"x.txt can't be read as inputs. Give a CSV"):
        read_inputs(tmp_path / "x.txt")
    np.save(tmp_path / "objects.npy", np.array([None]))
    with pytest.raises(DataError, match=r"objects.npy is not a .npy file of numbers"):
        read_inputs(tmp_path / "objects.npy")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match="has no images"):
        read_inputs(tmp_path / "nothing")


def test_an_array_file_that_is_cut_anywhere_is_refused_with_a_sentence(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))
    whole = (tmp_path / "x.npy").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "x.npy").write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"x\.npy is not a \.npy file of numbers"):
            read_inputs(tmp_path / "x.npy")
    for place in range(8, 80):
        (tmp_path / "x.npy").write_bytes(whole[:place] + b"(" + whole[place + 1 :])
        with suppress(DataError):  # some of these are still arrays
            read_inputs(tmp_path / "x.npy")
