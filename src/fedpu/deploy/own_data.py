"""A node's own, partly labelled data as a client of the federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, Num
from torch import Tensor
from torch.nn import functional

from fedpu.config import Config
from fedpu.data.dataset import as_inputs, as_labels, as_tokens
from fedpu.data.encoding import Encoding
from fedpu.data.images import is_image, read_images
from fedpu.data.labels import numbered
from fedpu.data.raw import labelled_rows
from fedpu.data.readers import READERS, FileReader, reader_for
from fedpu.data.readers.folder import UNLABELLED_FOLDERS
from fedpu.data.readers.npz import load_npz
from fedpu.data.settings import DataSettings
from fedpu.deploy.settings import NodeSettings
from fedpu.errors import DataError
from fedpu.labelling import UNLABELLED, Federation
from fedpu.priors import set_priors
from fedpu.record import ModelCard
from fedpu.registry import import_object, is_reference

Own = tuple[Num[Tensor, "n *shape"], Int64[Tensor, " n"]]


def read_own(
    node: NodeSettings, classes: tuple[str, ...], tokens: bool = False, encoding: Encoding | None = None
) -> Own:
    """Return the node's examples and their labels in the federation's numbers, ``−1`` where it has none.

    ``encoding`` is the federation's rule for the columns of a table, which the server's own table gave.
    """
    assert node.data is not None
    what = f"the data of '{node.name}'"
    if is_reference(node.data):
        return _checked(*_called(node.data), classes, what, tokens)
    path = Path(node.data)
    if path.is_dir():
        return _checked(*_read_folder(path, node.image_size, classes), classes, what)
    if path.suffix.lower() != ".npz":
        return _checked(*_read_table(path, node, classes, tokens, encoding), classes, what, tokens)
    arrays = load_npz(path, required=("x", "y"))
    labels = arrays["y"]
    if "classes" in arrays:
        labels = _renumbered(labels, [str(name) for name in arrays["classes"].reshape(-1)], classes, what)
    return _checked(arrays["x"], labels, classes, what, tokens)


def own_federation(node: NodeSettings, config: Config, card: ModelCard) -> Federation:
    """Return the node as a federation of one client: its positive classes are those that it has labelled."""
    inputs, labels = read_own(node, card.classes, card.tokens, card.encoding)
    if card.tokens:  # texts that are all shorter than the longest of the federation
        inputs = functional.pad(inputs, (0, max(0, card.shape[0] - inputs.shape[1])))
    count = len(card.classes)
    if config.method.fully_labelled and bool((labels < 0).any()):
        raise DataError(f"The {config.method.model_dump()['name']} method needs every label, but '{node.name}' has −1.")
    positive = torch.bincount(labels[labels >= 0], minlength=count) > 0
    known = not bool((labels < 0).any())
    federation = Federation(
        inputs=inputs,
        rows=torch.arange(len(inputs)),
        labels=labels,
        offsets=torch.tensor([0, len(inputs)]),
        sizes=torch.tensor([len(inputs)]),
        positive=positive[None],
        priors=(torch.bincount(labels, minlength=count) / len(labels))[None] if known else None,
        scenario="censored",
        classes=card.classes,
        normalisation=card.normalisation,
    )
    if config.method.needs_priors:
        federation = set_priors(federation, node.priors or config.priors)
    return federation


def _checked(x: Any, y: Any, classes: tuple[str, ...], what: str, tokens: bool = False) -> Own:
    inputs, labels = (as_tokens if tokens else as_inputs)(x, f"{what}: x"), as_labels(y, f"{what}: y")
    if len(inputs) != len(labels):
        raise DataError(f"{what} have {len(inputs)} examples and {len(labels)} labels; there must be one a example.")
    if int(labels.max()) >= len(classes):
        raise DataError(
            f"{what} have the label {int(labels.max())}; the federation has the classes 0 … {len(classes) - 1} "
            f"({', '.join(classes)})."
        )
    if not bool((labels >= 0).any()):
        raise DataError(f"{what} have no label at all. A client must have labelled some of its data.")
    return inputs, labels


def _called(reference: str) -> tuple[Any, Any]:
    try:
        x, y = import_object(reference)()
    except (TypeError, ValueError) as error:
        raise DataError(f"'{reference}' must take no argument and return (x, y): {error}.") from error
    return x, y


def _read_table(
    path: Path, node: NodeSettings, classes: tuple[str, ...], tokens: bool, encoding: Encoding | None
) -> tuple[Any, Any]:
    """Read a file as 'fedpu run' does, but by the federation's rule where there is one."""
    reader = reader_for(path)
    if reader is None:
        forms = "; ".join(READERS[name].what for name in READERS if issubclass(READERS[name], FileReader))
        raise DataError(
            f"A node reads a file, a folder of images or a function module:function, and {path} is none that can be "
            f"read. Files are: {forms}."
        )
    settings = DataSettings(name=str(path), label=node.label, ignore=node.ignore, test_fraction=0.0, tokens=tokens)
    inputs, names, rule = labelled_rows(reader.read(path, settings), settings, encoding)
    if encoding is None and rule is not None and not rule.plain:
        raise DataError(
            f"{path} has columns of words or missing numbers, which become inputs by a rule that all nodes must share, "
            "and the server has no table to take one from. Name a table of the same columns in the server's [data], "
            "or give columns of numbers alone."
        )
    return inputs, numbered(names, classes, f"{path}: {node.label}")[0]


def _renumbered(labels: Any, names: list[str], classes: tuple[str, ...], what: str) -> Any:
    strange = [name for name in names if name not in classes]
    if strange:
        raise DataError(f"{what} have the class '{strange[0]}'; the federation has {', '.join(classes)}.")
    numbers = np.array([*(classes.index(name) for name in names), UNLABELLED])
    given = as_labels(labels, f"{what}: y").numpy()
    if given.max() >= len(names):
        raise DataError(f"{what} have the label {given.max()} and only {len(names)} class names.")
    return numbers[given]


def _read_folder(
    folder: Path, image_size: tuple[int, int] | None, classes: tuple[str, ...]
) -> tuple[Tensor, list[int]]:
    paths: list[Path] = []
    labels: list[int] = []
    for part in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        unlabelled = part.name.lower() in UNLABELLED_FOLDERS
        if not unlabelled and part.name not in classes:
            raise DataError(
                f"{folder} has the folder '{part.name}', which is no class of the federation ({', '.join(classes)}) "
                f"and not '{UNLABELLED_FOLDERS[0]}'."
            )
        images = sorted(filter(is_image, part.iterdir()))
        paths += images
        labels += [UNLABELLED if unlabelled else classes.index(part.name)] * len(images)
    if not paths:
        raise DataError(f"{folder} has no images. Expected: <folder>/<class>/<image> and <folder>/unlabelled/<image>.")
    return torch.from_numpy(read_images(paths, image_size)), labels
