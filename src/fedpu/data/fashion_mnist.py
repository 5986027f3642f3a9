"""Fashion-MNIST: 70,000 pictures of clothes, in the format of MNIST."""

from __future__ import annotations

from pathlib import Path

from fedpu.data.dataset import Normalisation
from fedpu.data.files import FileSet
from fedpu.data.idx import idx_files, idx_reader
from fedpu.data.origins import debian_package, installed, mirror
from fedpu.data.source import Source

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

FILES = FileSet(
    name="fashion-mnist",
    # Taken from the files whose .gz has the published MD5: 8d4fb7e6…, 25c81989…, bef4ecab…, bb300cfd….
    files=idx_files(
        train_images="c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        train_labels="bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        test_images="5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        test_labels="0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    origins=(
        installed(Path("/usr/share/datasets/fashion-mnist")),
        mirror("https://storage.googleapis.com/tensorflow/tf-keras-datasets/"),
        mirror("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
        mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
        debian_package("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
    ),
    published="as they are or as .gz; the checksums are of the decompressed content",
)

FASHION_MNIST = Source(
    name="fashion-mnist",
    description="pictures of clothes",
    size="60,000 + 10,000 grey images, 28×28",
    classes=10,
    read=idx_reader(FILES, Normalisation(scale=1 / 255, mean=(0.2860,), std=(0.3530,)), CLASSES),
    files=FILES,
)
