"""``fedpu evaluate``, ``fedpu predict`` and ``fedpu export``: use what was trained."""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpu.cli import known
from fedpu.cli.console import Json, output, print_json
from fedpu.errors import DataError, FedpuError

if TYPE_CHECKING:
    from rich.table import Table

    from fedpu.applications.trained import TrainedModel
    from fedpu.data import Dataset
    from fedpu.evaluation import Measures

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Another data set: a name, a CSV, Parquet or .npz file or a folder of images."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure a run's model on the test set: accuracy, and precision, recall, F1 and calibration for each class."""
    from rich.table import Table

    from fedpu.applications.prepared import describe_test
    from fedpu.applications.trained import load_model
    from fedpu.data import load
    from fedpu.record import RunDirectory

    model = load_model(run)
    settings = RunDirectory.open(run).config().data
    if data is not None:
        settings = settings.model_copy(update={"name": data, "test": None})
    dataset = load(settings, model.card.encoding)
    if data is not None and dataset.test_origin != "given":
        dataset = _all_labelled(dataset)  # nothing of it needs to be kept for training
    on = describe_test(dataset)
    if on is None:
        raise DataError(f"'{dataset.name}' has no test set to measure on. Give one with --data.")
    if data is not None and dataset.test_origin != "given":
        on |= {"set": "labelled examples", "note": on["note"].replace("that were set aside", f"of {dataset.name}", 1)}
    measures = _measures(model, dataset, run)
    if json:
        accuracies = [one["recall"] for one in measures.classes]
        print_json(asdict(measures) | {"per_class_accuracy": accuracies, "measured_on": on})
        return
    word = "accuracy" if on["is_accuracy"] else "right of the labelled examples set aside"
    table = Table(
        title=f"{word} {measures.accuracy:.2%}, loss {measures.loss:.4f}, calibration error "
        f"{measures.calibration_error:.4f}",
        header_style="bold",
    )
    table.add_column("class")
    for heading in ("examples", "recall", "precision", "F1", "calibration error"):
        table.add_column(heading, justify="right")
    for one in measures.classes:
        shares = [_share(one[key]) for key in ("recall", "precision", "f1")]
        table.add_row(one["class"], str(one["examples"]), *shares, f"{one['calibration_error']:.4f}")
    output.print(table)
    output.print(f"Measured on {on['examples']:,} examples: {on['note']}", highlight=False, soft_wrap=True)
    if len(measures.classes) <= 12:
        output.print(_confusion(measures))


def _all_labelled(dataset: Dataset) -> Dataset:
    """Return a data set whose test set is everything that is labelled."""
    import torch

    labelled = dataset.labels >= 0
    return replace(
        dataset,
        test_inputs=torch.cat([dataset.inputs[labelled], dataset.test_inputs]),
        test_labels=torch.cat([dataset.labels[labelled], dataset.test_labels]),
        test_origin="set aside",
    )


def _measures(model: TrainedModel, dataset: Dataset, run: Path) -> Measures:
    import torch

    from fedpu.applications.trained import check_inputs
    from fedpu.evaluation import measure

    card = model.card
    inputs = dataset.test_inputs
    check_inputs(inputs, card)
    strange = [name for name in dataset.classes if name not in card.classes]
    if strange:
        raise DataError(
            f"'{dataset.name}' has the class '{strange[0]}', which the model does not know; it knows "
            f"{', '.join(card.classes)}."
        )
    number = torch.tensor([card.classes.index(name) for name in dataset.classes])
    logits = model.logits(inputs)
    if not bool(torch.isfinite(logits).all()):
        raise FedpuError(f"The model of '{run}' gives outputs that are NaN or infinite: nothing can be measured.")
    return measure(logits, number[dataset.test_labels], card.classes)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def _confusion(measures: Measures) -> Table:
    from rich.table import Table

    table = Table(title="true class (rows), predicted class (columns)", header_style="bold")
    table.add_column("")
    for one in measures.classes:
        table.add_column(one["class"], justify="right")
    for one, row in zip(measures.classes, measures.confusion, strict=True):
        table.add_row(one["class"], *(str(count) for count in row))
    return table


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a .safetensors file of export.")],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A CSV or Parquet file, a .npz (array x), a .npy, an image, or a folder of images."
        ),
    ],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", "-p", help="Also print the probability of every class.")
    ] = False,
    json: Json = False,
) -> None:
    """Classify new examples: one CSV line each with the class and its probability."""
    from fedpu.applications.trained import load_model

    model = load_model(run)
    new = model.read(file)
    found = model.probabilities(new)
    rows: list[dict[str, Any]] = []
    for name, chances in zip(new.names, found, strict=True):
        best = int(chances.argmax())
        row = {"example": name, "class": model.classes[best], "probability": round(float(chances[best]), 6)}
        if probabilities:
            row |= {f"p({cls})": round(float(p), 6) for cls, p in zip(model.classes, chances, strict=True)}
        rows.append(row)
    if json:
        print_json(rows)
        return
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def export(
    run: Run,
    form: Annotated[
        str, typer.Option("--format", "-f", help=f"What to write: {', '.join(known.names('exporters'))}.")
    ] = (known.names("exporters")[0]),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; by default model.… in the run directory.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's model as a file that takes raw inputs and gives probabilities, and check that it does."""
    from fedpu.applications.export import EXPORTERS
    from fedpu.applications.export import export as export_to
    from fedpu.applications.trained import load_model

    exporter = EXPORTERS[form]
    model = load_model(run)
    path = out or run / f"exported{exporter.suffix}"
    far = export_to(model, path, form)
    if json:
        print_json({"file": str(path), "format": form, "difference": far, "classes": list(model.classes)})
        return
    output.print(
        f"{path}: takes raw inputs, gives the probabilities of {len(model.classes)} classes; they differ from "
        f"'fedpu predict' by {far:.1e} at most on rows drawn at random.",
        highlight=False,
        soft_wrap=True,
    )
