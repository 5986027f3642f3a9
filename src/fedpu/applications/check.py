"""What is there in data, what will work and what will not, in sentences, before anything is trained."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpu.applications.suggestion import suggested
from fedpu.config.config import toml_string
from fedpu.data import Dataset, DataSettings, load
from fedpu.data.encoding import NumberColumn, WordColumn
from fedpu.errors import FedpuError

SHOWN = 5
"""clients or classes that a sentence names before it counts the others"""
SUSPICIOUS = frozenset({"na", "n/a", "nan", "none", "null", "unknown", "unlabelled", "unlabeled", "?", "-", "missing"})
"""class names that more likely mean that there is no label"""
FEW = 20


@dataclass(frozen=True)
class Check:
    """What a check has found; with ``wrong``, nothing can be trained."""

    there: list[str]
    works: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    command: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "there": self.there,
            "works": self.works,
            "doubtful": self.doubtful,
            "wrong": self.wrong,
            "command": self.command,
        }


def check(settings: DataSettings) -> Check:
    """Look at the data that settings name."""
    try:
        data = load(settings)
    except FedpuError as error:
        return Check([], wrong=str(error).splitlines())
    return check_data(data, settings)


def check_data(data: Dataset, settings: DataSettings | None = None) -> Check:
    """Look at a data set."""
    command = None if settings is None else shlex.join(["fedpu", "run", *_sets(settings), *_suggested(data)])
    return Check(list(_there(data)), list(_works(data)), list(_doubtful(data)), [], command)


def _there(data: Dataset) -> Iterator[str]:
    examples, labelled = len(data.labels) + len(data.test_labels), int((data.labels >= 0).sum())
    unlabelled = len(data.labels) - labelled
    kind = "rows of" if data.encoding is not None or len(data.shape) == 1 else "images of"
    what = f"{data.shape[0]} token ids" if data.tokens else f"{' × '.join(map(str, data.shape))} inputs"
    yield (
        f"{data.name}: {examples:,} {kind} {what}, {len(data.classes)} classes ({_some(data.classes)}); {unlabelled:,} "
        f"{'is' if unlabelled == 1 else 'are'} unlabelled."
    )
    if data.encoding is not None:
        numbers = [column for column in data.encoding.columns if isinstance(column, NumberColumn)]
        words = [column for column in data.encoding.columns if isinstance(column, WordColumn)]
        missing = [column.name for column in numbers if column.marked]
        yield (
            f"{len(numbers)} columns of numbers"
            + (f", with missing values in {_some(missing)} (filled with the median, and marked)" if missing else "")
            + (
                f"; {len(words)} of words ({_some([column.name for column in words])}), one input per word"
                if words
                else ""
            )
            + "."
        )
    if data.client is None:
        yield "There is no client column: all examples belong to one client, unless a partition deals them out."
    else:
        names = data.client_names or tuple(map(str, range(int(data.client.max()) + 1)))
        sizes = np.bincount(data.client.numpy(), minlength=len(names))
        yield f"{len(names)} clients ({_some(names)}) with {sizes.min():,} to {sizes.max():,} training examples."
    if data.test_origin == "given":
        yield f"A test set of {len(data.test_labels):,} examples came with the data."
    elif len(data.test_labels):
        yield f"{len(data.test_labels):,} labelled examples were set aside to measure on (data.test_fraction)."
    else:
        yield "There is no test set: nothing will be measured."


def _works(data: Dataset) -> Iterator[str]:
    if not bool((data.labels < 0).any()):
        yield "Every example is labelled: plain federated training will work, and there are no unlabelled data to use."
        yield (
            "To see how methods do with fewer labels, have some hidden: --set labelling.positive=1 --set "
            "labelling.overlap=true."
        )
        return
    yield "Methods that learn from unlabelled data will work; class shares are estimated while training."
    if data.test_origin == "given":
        yield "Accuracy will be measured on the test set."
    elif len(data.test_labels):
        yield (
            "Accuracy can't be measured, only the recall on labelled examples set aside, and an estimate from it. For "
            "an accuracy give a fully labelled test set (data.test, or x_test and y_test)."
        )


def _doubtful(data: Dataset) -> Iterator[str]:
    labels = data.labels.numpy()
    counts = np.bincount(labels[labels >= 0], minlength=len(data.classes))
    once = [name for name, count in zip(data.classes, counts, strict=True) if count == 1]
    if once:
        seen = f"label {_some(once)} is" if len(once) == 1 else f"labels {_some(once)} are each"
        yield f"The {seen} seen only once in training: nothing can be learned from a single example."
    few = [name for name, count in zip(data.classes, counts, strict=True) if 1 < count < FEW]
    if few:
        yield f"Fewer than {FEW} training examples are labelled as {_some(few)}."
    suspicious = [name for name in data.classes if name.strip().lower() in SUSPICIOUS]
    if suspicious:
        yield f"There is a class called {_some(suspicious)}. If it means that nobody knows, leave those cells empty."
    yield from _doubtful_clients(data)
    yield from _doubtful_columns(data)


def _doubtful_clients(data: Dataset) -> Iterator[str]:
    if data.client is None:
        return
    names = data.client_names or tuple(map(str, range(int(data.client.max()) + 1)))
    owner, labels = data.client.numpy(), data.labels.numpy()
    labelled = np.bincount(owner[labels >= 0], minlength=len(names))
    unlabelled = np.bincount(owner[labels < 0], minlength=len(names))
    if unlabelled.any():
        without = [name for name, count in zip(names, unlabelled, strict=True) if not count]
        if without:
            found = f"{_of(without, 'client')} without unlabelled data: {_some(without)}"
            yield f"{found}. {'It learns' if len(without) == 1 else 'They learn'} from labels alone."
    silent = [name for name, count in zip(names, labelled, strict=True) if not count]
    if silent:
        yield f"{_of(silent, 'client')} without any label: {_some(silent)}. To them every class is a negative one."


def _doubtful_columns(data: Dataset) -> Iterator[str]:
    if data.encoding is None:
        return
    for column in data.encoding.columns:
        if isinstance(column, WordColumn) and len(column.words) > max(FEW, len(data.labels) / 2):
            yield (
                f"The column '{column.name}' has {len(column.words):,} different words in {len(data.labels):,} rows: "
                f"is it an identifier? Leave it out with --set 'data.ignore=[\"{column.name}\"]'."
            )
    inputs = data.inputs.numpy()
    place = 0
    for column in data.encoding.columns:
        values = inputs[:, place]
        place += column.width
        if not isinstance(column, NumberColumn):
            continue
        if (values == values[0]).all():
            yield f"The column '{column.name}' has the same value in every training row, and tells nothing."
        elif len(values) > FEW and (np.diff(np.sort(values)) == 1).all():
            yield (
                f"The column '{column.name}' counts the rows: is it an identifier? Leave it out with --set "
                f"'data.ignore=[\"{column.name}\"]'."
            )


def _sets(settings: DataSettings) -> list[str]:
    given = settings.model_dump(exclude_defaults=True, mode="json") | {"name": settings.name}
    return [f"--set=data.{key}={_toml(value)}" for key, value in given.items()]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_string(one) if isinstance(one, str) else str(one) for one in value) + "]"
    return str(value)


def _suggested(data: Dataset) -> list[str]:
    return [f"--set={setting}" for setting in suggested(data)]


def _some(names: Any) -> str:
    shown = ", ".join(f"'{name}'" for name in list(names)[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _of(names: list[str], what: str) -> str:
    return f"{len(names)} {what}{'' if len(names) == 1 else 's'}"


__all__ = ["Check", "check", "check_data"]
