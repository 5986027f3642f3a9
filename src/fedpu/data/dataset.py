"""What every data source gives: images or feature vectors with their true labels, in memory, checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor

from fedpu.errors import DataError
from fedpu.randomness import numpy_generator

MAX_CLASSES = 10_000
_PART = 1024


def dtype_name(values: Tensor) -> str:
    """Return the name of a tensor's type, such as "uint8"."""
    return str(values.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Normalisation:
    """How stored values become a network's inputs: ``(x · scale − mean) / std``, per channel."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, stored: Num[Tensor, " n *shape"]) -> Float[Tensor, " n *shape"]:
        """Return ``stored`` as floats, normalised."""
        shape = (1, -1) + (1,) * (stored.dim() - 2)
        mean = torch.tensor(self.mean, device=stored.device).view(shape)
        std = torch.tensor(self.std, device=stored.device).view(shape)
        return (stored.to(torch.float32) * self.scale - mean) / std


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples with their true labels.

    Inputs are stored as they came, ``uint8`` or ``float32``, channels first: ``(n, channels, height, width)``
    for images, ``(n, features)`` for vectors. Labels are ``0 … C−1``; a training label of ``−1`` means that
    nobody knows it.
    """

    name: str
    inputs: Num[Tensor, " n *shape"]
    labels: Int64[Tensor, " n"]
    test_inputs: Num[Tensor, " n_test *shape"]
    test_labels: Int64[Tensor, " n_test"]
    classes: tuple[str, ...]
    normalisation: Normalisation
    client: Int64[Tensor, " n"] | None = None
    validation: tuple[Num[Tensor, " n_val *shape"], Int64[Tensor, " n_val"]] | None = None
    """examples with their classes that nobody trains on, for schedules that follow measurements"""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])

    @cached_property
    def order_key(self) -> tuple[int, ...]:
        """A secret of the data: numbers that only somebody who has the examples and labels in this order can know.

        What is drawn with it can't be undone by whoever sees the examples in another order and knows the seed.
        """
        digest = hashlib.blake2b(digest_size=32)
        for part in (self.labels, self.inputs):
            digest.update(np.ascontiguousarray(part.numpy()).data)
        return tuple(np.frombuffer(digest.digest(), "<u4").tolist())

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: Any,
        *,
        x_test: Any = None,
        y_test: Any = None,
        client: Any = None,
        classes: Sequence[str] | None = None,
        normalisation: Normalisation | None = None,
        test_fraction: float = 0.2,
        name: str = "arrays",
    ) -> Dataset:
        """Make a data set from arrays (NumPy, PyTorch or nested lists), checking them.

        ``x`` is ``(n, features)``, ``(n, height, width)``, ``(n, height, width, 1 or 3)`` or
        ``(n, 1 or 3, height, width)``; integers 0 … 255 in ``uint8`` or floats. ``y`` holds classes
        ``0 … C−1``, and ``−1`` for examples that nobody labelled. Without a test set, ``test_fraction`` of
        the labelled examples of every class is set aside by a fixed rule. ``client`` says whose each example
        is, for ``partition.kind = "column"``.
        """
        inputs, labels = as_inputs(x, f"{name}: x"), as_labels(y, f"{name}: y")
        owners = None if client is None else _as_owners(client, f"{name}: client")
        _same_length(name, x=inputs, y=labels, client=owners)
        if (x_test is None) != (y_test is None):
            given, absent = ("y_test", "x_test") if x_test is None else ("x_test", "y_test")
            raise DataError(f"{name}: {given} was given without {absent}. Give both, or neither.")
        if x_test is None:
            test = _held_out(labels.numpy(), test_fraction, name, None if owners is None else owners.numpy())
            test_inputs, test_labels = inputs[test], labels[test]
            inputs, labels = inputs[~test], labels[~test]
            owners = None if owners is None else owners[~test]
        else:
            test_inputs = as_inputs(x_test, f"{name}: x_test")
            test_labels = as_labels(y_test, f"{name}: y_test")
            _same_length(name, x_test=test_inputs, y_test=test_labels)
        count = len(classes) if classes is not None else int(labels.max()) + 1
        names = tuple(classes) if classes is not None else tuple(str(c) for c in range(count))
        _check_shapes(name, inputs, test_inputs)
        _check_labels(name, labels, test_labels, names)
        return cls(
            name=name,
            inputs=inputs,
            labels=labels,
            test_inputs=test_inputs,
            test_labels=test_labels,
            classes=names,
            normalisation=normalisation or measured_normalisation(inputs),
            client=owners,
        )


def as_inputs(values: Any, what: str) -> Num[Tensor, " n *shape"]:
    """Return ``values`` as a ``uint8`` or ``float32`` tensor, channels first, refusing what is not finite."""
    array = _array(values, what)
    if array.ndim < 2 or array.size == 0:
        raise DataError(
            f"{what} must hold examples along its first dimension and values along the rest; "
            f"its shape is {array.shape}."
        )
    if not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating)):
        raise DataError(f"{what} must hold numbers (uint8 or floats); it holds {array.dtype}.")
    if array.dtype != np.uint8:
        with np.errstate(over="ignore"):  # too large for float32 is infinite, which is told below
            array = array.astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        if len(bad):
            raise DataError(
                f"{what} has values that are NaN or infinite in {len(bad)} examples (the first is example "
                f"{bad[0]}). Remove those examples or fill the values in."
            )
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim > 4:
        raise DataError(f"{what} has {array.ndim} dimensions; vectors have 2 and images 3 or 4.")
    array = np.ascontiguousarray(array)
    # PyTorch can't share memory that may not be written, such as that of bytes.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def as_labels(values: Any, what: str) -> Int64[Tensor, " n"]:
    """Return ``values`` as ``int64`` class numbers, ``−1`` for unlabelled."""
    array = _array(values, what)
    if array.ndim == 0 or array.size != len(array):
        raise DataError(f"{what} must hold one class number an example; its shape is {array.shape}.")
    array = array.reshape(-1)
    if np.issubdtype(array.dtype, np.floating) and np.isfinite(array).all() and (array == np.round(array)).all():
        array = array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"{what} must hold whole class numbers 0, 1, 2, … (and −1 for unlabelled); it holds {array.dtype}."
        )
    wrong = np.flatnonzero((array < -1) | (array >= MAX_CLASSES))
    if len(wrong):
        raise DataError(
            f"{what} has labels out of range: example {wrong[0]} has {array[wrong[0]]}. "
            "Classes are numbered 0 … C−1, and −1 means unlabelled."
        )
    return torch.from_numpy(array.astype(np.int64))


def measured_normalisation(inputs: Num[Tensor, " n *shape"]) -> Normalisation:
    """Return the normalisation to mean 0 and deviation 1, per channel of images or feature of vectors."""
    scale = 1 / 255 if inputs.dtype == torch.uint8 else 1.0
    values = inputs.numpy().reshape(len(inputs), inputs.shape[1], -1)
    count = values.shape[0] * values.shape[2]
    # In parts, because all values in double precision may be too many for the memory.
    parts = range(0, len(values), _PART)
    mean = sum(values[i : i + _PART].sum(axis=(0, 2), dtype=np.float64) for i in parts) / count
    square = sum(((values[i : i + _PART] - mean[:, None]) ** 2).sum(axis=(0, 2)) for i in parts) / count
    mean, std = mean * scale, np.sqrt(square) * scale
    std = np.where(std < 1e-6, 1.0, std)
    return Normalisation(scale, tuple(float(m) for m in mean), tuple(float(s) for s in std))


def _array(values: Any, what: str) -> np.ndarray[Any, np.dtype[Any]]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise DataError(f"{what} is ragged: its examples have different shapes.") from error


def _as_owners(values: Any, what: str) -> Int64[Tensor, " n"]:
    """Number the clients 0 … K−1 in the order of their sorted names."""
    owners = _array(values, what).reshape(-1)
    if np.issubdtype(owners.dtype, np.floating) and not np.isfinite(owners).all():
        raise DataError(f"{what} must say whose each example is, but some entries are NaN or infinite.")
    if owners.dtype == object:
        raise DataError(f"{what} must hold numbers or strings, one kind of them; it holds Python objects.")
    _, numbers = np.unique(owners, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64))


def _held_out(
    labels: np.ndarray[Any, np.dtype[np.int64]],
    fraction: float,
    name: str,
    owners: np.ndarray[Any, np.dtype[np.int64]] | None,
) -> Tensor:
    if not 0 < fraction < 1:
        raise DataError(f"{name}: test_fraction must lie between 0 and 1; it is {fraction}.")
    test = np.zeros(len(labels), dtype=bool)
    for cls in np.unique(labels[labels >= 0]):
        members = np.flatnonzero(labels == cls)
        # Every class is tested where it can be, and none is taken from training altogether.
        count = min(max(round(fraction * len(members)), 1), len(members) - 1)
        test[numpy_generator(0, "held-out", int(cls)).permutation(members)[:count]] = True
    if owners is not None:
        # A client that would lose all of its examples keeps them, or it would be no client any more.
        left = np.bincount(owners[~test], minlength=int(owners.max()) + 1)
        test &= left[owners] > 0
    if not test.any():
        raise DataError(
            f"{name}: no labelled example is left to test on. Give x_test and y_test, or more labelled data."
        )
    return torch.from_numpy(test)


def _same_length(name: str, **columns: Tensor | None) -> None:
    lengths = {key: len(column) for key, column in columns.items() if column is not None}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        raise DataError(f"{name}: the arrays must have one entry an example, but {told}.")


def _check_shapes(name: str, inputs: Tensor, test_inputs: Tensor) -> None:
    if inputs.shape[1:] != test_inputs.shape[1:]:
        raise DataError(
            f"{name}: training examples have shape {tuple(inputs.shape[1:])} and test examples "
            f"{tuple(test_inputs.shape[1:])}; they must be the same."
        )
    if inputs.dtype != test_inputs.dtype:
        raise DataError(
            f"{name}: training examples are stored as {inputs.dtype} and test examples as "
            f"{test_inputs.dtype}; they must be the same, because both are normalised alike."
        )


def _check_labels(name: str, labels: Tensor, test_labels: Tensor, classes: tuple[str, ...]) -> None:
    count = len(classes)
    if count < 2:
        raise DataError(f"{name}: there are fewer than two classes; classification needs two or more.")
    if len(set(classes)) < count:
        raise DataError(f"{name}: two classes have the same name. Their names are {', '.join(classes)}.")
    for what, column in (("training", labels), ("test", test_labels)):
        if int(column.max()) >= count:
            raise DataError(
                f"{name}: a {what} label is out of range: {int(column.max())}, with classes 0 … {count - 1}."
            )
    if int(test_labels.min()) < 0:
        raise DataError(f"{name}: test labels must all be known; one of them is −1.")
    missing = set(range(count)) - set(labels.tolist())
    if missing:
        raise DataError(
            f"{name}: no training example has class {min(missing)}; classes must be numbered 0 … C−1 without gaps."
        )
