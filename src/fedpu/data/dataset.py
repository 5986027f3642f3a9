"""What every data source gives: images, feature vectors or token ids with their labels, in memory, checked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64, Num
from torch import Tensor

from fedpu.data.encoding import Encoding
from fedpu.data.labels import MAX_CLASSES, are_names, names_of, numbered
from fedpu.data.problems import Problems
from fedpu.errors import DataError
from fedpu.randomness import numpy_generator

MAX_TOKEN = 2**31 - 1
_PART = 1024

TestOrigin = Literal["given", "set aside", "none"]
"""whence a test set: it came with the data, it is a share of the labelled training examples, or there is none"""


def dtype_name(values: Tensor) -> str:
    """Return the name of a tensor's type, such as "uint8"."""
    return str(values.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Normalisation:
    """How stored values become a network's inputs: ``(x · scale − mean) / std``, per channel.

    Token ids (``int64``) are names and not amounts: they stay as they are.
    """

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of_tokens(cls) -> Normalisation:
        """Return the one that token ids have."""
        return cls(1.0, (), ())

    def __call__(self, stored: Num[Tensor, " n *shape"]) -> Num[Tensor, " n *shape"]:
        """Return ``stored`` as floats, normalised; token ids as they are."""
        if stored.dtype == torch.int64:
            return stored
        shape = (1, -1) + (1,) * (stored.dim() - 2)
        mean = torch.tensor(self.mean, device=stored.device).view(shape)
        std = torch.tensor(self.std, device=stored.device).view(shape)
        # In place, because memory for one more batch costs more than the sums.
        return stored.to(torch.float32, copy=True).mul_(self.scale).sub_(mean).div_(std)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test examples with their true labels.

    Inputs are stored as they came, ``uint8`` or ``float32``, channels first: ``(n, channels, height, width)``
    for images, ``(n, features)`` for vectors; token ids are ``int64``, ``(n, length)``, filled up with 0. Labels are
    ``0 … C−1``; a training label of ``−1`` means that nobody knows it.
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
    client_names: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    """how the columns of a table became inputs; None where the data were numbers to begin with"""
    test_origin: TestOrigin = "given"

    @property
    def tokens(self) -> bool:
        """Are the inputs token ids?"""
        return self.inputs.dtype == torch.int64

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
        tokens: bool = False,
        name: str = "arrays",
    ) -> Dataset:
        """Make a data set from arrays (NumPy, PyTorch or nested lists), checking them.

        ``x`` is ``(n, features)``, ``(n, height, width)``, ``(n, height, width, 1 or 3)`` or
        ``(n, 1 or 3, height, width)``; integers 0 … 255 in ``uint8`` or floats. With ``tokens`` it is ``(n, length)``
        and holds token ids, 0 for padding, which stay integers. ``y`` holds classes ``0 … C−1``, and ``−1`` or NaN for
        examples that nobody labelled; or names of classes, and None or an empty string. Without a test set,
        ``test_fraction`` of the labelled examples of every class is set aside by a fixed rule; 0 sets nothing aside.
        ``client`` says whose each example is, for ``partition.kind = "column"``.
        """
        problems, given = Problems(), (x_test is not None, y_test is not None)
        if given[0] != given[1]:
            there, absent = ("y_test", "x_test") if x_test is None else ("x_test", "y_test")
            problems.add(f"{name}: {there} was given without {absent}. Give both, or neither.")
        if not 0 <= test_fraction < 1:
            problems.add(f"{name}: test_fraction must lie between 0 and 1; it is {test_fraction}.")
        to_inputs = as_tokens if tokens else as_inputs
        inputs = labels = test_inputs = test_labels = owners = client_names = None
        with problems.collecting():
            inputs = to_inputs(x, f"{name}: x")
        with problems.collecting():
            labels, classes = _classes_of(y, classes, f"{name}: y")
        if client is not None:
            with problems.collecting():
                owners, client_names = _as_owners(client, f"{name}: client")
        with problems.collecting():
            _same_length(name, x=inputs, y=labels, client=owners)
        if x_test is not None:
            with problems.collecting():
                test_inputs = to_inputs(x_test, f"{name}: x_test")
        if y_test is not None:
            with problems.collecting():
                test_labels, classes = _classes_of(y_test, classes, f"{name}: y_test")
        with problems.collecting():
            _same_length(name, x_test=test_inputs, y_test=test_labels)
        problems.tell()
        assert inputs is not None
        assert labels is not None
        origin: TestOrigin = "given"
        if test_inputs is None or test_labels is None:
            test = held_out_rows(labels.numpy(), test_fraction, name, None if owners is None else owners.numpy())
            origin = "set aside" if test_fraction else "none"
            test_inputs, test_labels = inputs[test], labels[test]
            inputs, labels = inputs[~test], labels[~test]
            owners = None if owners is None else owners[~test]
        count = len(classes) if classes is not None else int(labels.max()) + 1
        names = tuple(classes) if classes is not None else tuple(str(c) for c in range(count))
        with problems.collecting():
            _check_shapes(name, inputs, test_inputs)
        with problems.collecting():
            _check_labels(name, labels, test_labels, names)
        problems.tell()
        return cls(
            name=name,
            inputs=inputs,
            labels=labels,
            test_inputs=test_inputs,
            test_labels=test_labels,
            classes=names,
            normalisation=normalisation or measured_normalisation(inputs),
            client=owners,
            client_names=client_names,
            test_origin=origin,
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


def as_tokens(values: Any, what: str) -> Int64[Tensor, " n length"]:
    """Return token ids as ``int64``, refusing what can't be one."""
    array = _array(values, what)
    if array.ndim != 2 or array.size == 0:
        raise DataError(
            f"{what} must hold one row of token ids per example, filled up with 0; its shape is {array.shape}."
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(f"{what} must hold token ids, which are whole numbers; it holds {array.dtype}.")
    wrong = np.flatnonzero(((array < 0) | (array > MAX_TOKEN)).any(axis=1))
    if len(wrong):
        row = array[wrong[0]]
        bad = row[(row < 0) | (row > MAX_TOKEN)][0]
        raise DataError(f"{what} has the token id {bad} in example {wrong[0]}; ids lie between 0 and {MAX_TOKEN}.")
    return torch.from_numpy(np.ascontiguousarray(array.astype(np.int64)))


def _classes_of(
    values: Any, classes: Sequence[str] | None, what: str
) -> tuple[Int64[Tensor, " n"], Sequence[str] | None]:
    """Return class numbers, and the classes' names where the labels are names."""
    array = _array(values, what)
    if not are_names(array):
        return as_labels(array, what), classes
    if array.ndim != 1:
        raise DataError(f"{what} must hold one label per example; its shape is {array.shape}.")
    numbers, names = numbered(names_of(array), classes, what)
    return torch.from_numpy(numbers), names


def as_labels(values: Any, what: str) -> Int64[Tensor, " n"]:
    """Return ``values`` as ``int64`` class numbers, ``−1`` for unlabelled, which NaN may stand for."""
    array = _array(values, what)
    if array.ndim == 0 or array.size != len(array):
        raise DataError(f"{what} must hold one class number an example; its shape is {array.shape}.")
    array = array.reshape(-1)
    if np.issubdtype(array.dtype, np.floating):
        filled = np.where(np.isnan(array), -1, array)
        if np.isfinite(filled).all() and (filled == np.round(filled)).all():
            array = filled.astype(np.int64)
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
    if inputs.dtype == torch.int64:
        return Normalisation.of_tokens()
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


def _as_owners(values: Any, what: str) -> tuple[Int64[Tensor, " n"], tuple[str, ...]]:
    """Number the clients 0 … K−1 in the order of their sorted names."""
    owners = _array(values, what).reshape(-1)
    if np.issubdtype(owners.dtype, np.floating) and not np.isfinite(owners).all():
        raise DataError(f"{what} must say whose each example is, but some entries are NaN or infinite.")
    if owners.dtype == object:
        kinds = {type(value) for value in owners.tolist()}
        if kinds != {str}:
            raise DataError(f"{what} must hold numbers or strings, one kind of them; it holds Python objects.")
        owners = owners.astype(str)
    if owners.dtype.kind in "UST":
        empty = np.flatnonzero(np.char.strip(owners.astype(str)) == "")
        if len(empty):
            raise DataError(f"{what} must say whose each example is, but {len(empty)} are empty (first: {empty[0]}).")
    found, numbers = np.unique(owners, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64)), tuple(str(name) for name in names_of(found))


def held_out_rows(
    labels: np.ndarray[Any, np.dtype[np.int64]],
    fraction: float,
    name: str,
    owners: np.ndarray[Any, np.dtype[np.int64]] | None,
) -> Tensor:
    """Say which examples are set aside for testing: a share of the labelled ones of every class, by a fixed rule."""
    test = np.zeros(len(labels), dtype=bool)
    if fraction == 0:
        return torch.from_numpy(test)
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
        if len(column) and int(column.max()) >= count:
            raise DataError(
                f"{name}: a {what} label is out of range: {int(column.max())}, with classes 0 … {count - 1}."
            )
    if len(test_labels) and int(test_labels.min()) < 0:
        raise DataError(f"{name}: test labels must all be known; one of them is −1.")
    missing = sorted(set(range(count)) - set(labels.tolist()))
    if missing:
        called = "" if classes[missing[0]] == str(missing[0]) else f" ('{classes[missing[0]]}')"
        raise DataError(
            f"{name}: no training example has class {missing[0]}{called}; nobody labels it, and classes must be "
            "numbered 0 … C−1 without gaps."
        )
