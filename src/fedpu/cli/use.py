"""``fedpu evaluate`` and ``fedpu predict``: use what was trained."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedpu.cli.console import Json, output, print_json
from fedpu.errors import DataError, FedpuError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from fedpu.record import ModelCard, RunDirectory

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Another data set: a name, a .npz file or a folder of images."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure a run's model on the test set: accuracy, loss, and accuracy for each class."""
    import torch

    from fedpu.data import load
    from fedpu.evaluation import evaluate as evaluate_on
    from fedpu.labelling import TestSet
    from fedpu.record import RunDirectory

    directory = RunDirectory.open(run)
    network, card, device = _model(directory)
    settings = directory.config().data
    dataset = load(settings if data is None else settings.model_copy(update={"name": data}))
    _check_inputs(dataset.test_inputs, card)
    strange = [name for name in dataset.classes if name not in card.classes]
    if strange:
        known = ", ".join(card.classes)
        raise DataError(
            f"'{dataset.name}' has the class '{strange[0]}', which the model does not know; it knows {known}."
        )
    number = torch.tensor([card.classes.index(name) for name in dataset.classes])
    test = TestSet(dataset.test_inputs, number[dataset.test_labels], card.normalisation)
    metrics = evaluate_on(network, test, len(card.classes), device)
    if not math.isfinite(metrics.loss):
        raise FedpuError(f"The model of '{run}' gives outputs that are NaN or infinite: nothing can be measured.")
    if json:
        print_json(asdict(metrics))
        return
    table = Table(title=f"accuracy {metrics.accuracy:.2%}, loss {metrics.loss:.4f}", header_style="bold")
    table.add_column("class")
    table.add_column("accuracy", justify="right")
    for name, accuracy in zip(card.classes, metrics.per_class_accuracy, strict=True):
        table.add_row(name, "–" if accuracy is None else f"{accuracy:.2%}")
    output.print(table)


def predict(
    run: Run,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A .npz (array x), a .npy, an image, or a folder of images."),
    ],
    json: Json = False,
) -> None:
    """Classify new examples: one CSV line each with the class and its probability."""
    import torch

    from fedpu.data import read_inputs
    from fedpu.engine import predict as outputs_of
    from fedpu.record import RunDirectory

    network, card, device = _model(RunDirectory.open(run))
    image = len(card.shape) == 3
    new = read_inputs(file, card.shape[1:] if image else None, card.shape[0] if image else None)  # type: ignore[arg-type]
    _check_inputs(new.inputs, card)
    logits = outputs_of(network, new.inputs, card.normalisation, device)
    if not bool(torch.isfinite(logits).all()):
        first = new.names[int(torch.nonzero(~torch.isfinite(logits).all(dim=1))[0])]
        raise FedpuError(f"The output of the model of '{run}' for '{first}' is NaN or infinite: it is no prediction.")
    probabilities, chosen = logits.softmax(dim=1).max(dim=1)
    rows = [
        {"example": name, "class": card.classes[int(cls)], "probability": round(float(p), 4)}
        for name, cls, p in zip(new.names, chosen, probabilities, strict=True)
    ]
    if json:
        print_json(rows)
        return
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _model(directory: RunDirectory) -> tuple[nn.Module, ModelCard, torch.device]:
    from fedpu.record import fit

    config = directory.config()
    state, card = directory.model()
    network = config.model.build(card.shape, len(card.classes))
    fit(network, state, directory.path)
    return network, card, config.engine.compute_device()


def _check_inputs(inputs: Tensor, card: ModelCard) -> None:
    from fedpu.data import dtype_name

    shape, dtype = tuple(inputs.shape[1:]), dtype_name(inputs)
    if shape != card.shape:
        given, wanted = "×".join(map(str, shape)), "×".join(map(str, card.shape))
        raise DataError(f"These inputs are {given}; the model was trained on {wanted}.")
    if dtype != card.dtype:
        raise DataError(f"These inputs are {dtype}; the model was trained on {card.dtype}, scaled in another way.")
