"""Two lopsided federations of MNIST, for docs/aligned.md: ``python results/lopsided/measure.py``.

A class that one client alone holds and labels, and unlabelled data of which a tenth is a class that nobody labels.
Writes ``results.json`` beside this file: test accuracies by method and seed.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import fedpu
from fedpu.data import Dataset

SEEDS = range(3)
LONELY = STRANGE = 9
CLIENTS = 5
SETTINGS = [
    "model.name=paper-cnn",
    'augmentation.strong=["affine"]',
    "augmentation.shift=2",
    "aggregation.rounds=40",
    "aggregation.batch_size=20",
    "aggregation.lr=0.03",
    "evaluation.every=40",
    "engine.workers=1",
    "partition.kind=column",
]


def lonely(seed: int) -> Dataset:
    """Return MNIST images on five clients, the nines all on client 0."""
    data = fedpu.load("mnist-5k")
    labels = data.labels.numpy()
    owners = np.random.default_rng(seed).integers(0, CLIENTS, len(labels))
    owners[labels == LONELY] = 0
    return _with(data, labels, owners, "lonely")


def strange(seed: int, nines: bool) -> Dataset:
    """Return MNIST images on nine clients, each with labels for half of one of nine classes; nines only unlabelled."""
    data = fedpu.load("mnist-5k")
    labels = data.labels.numpy().copy()
    random = np.random.default_rng(seed)
    owners = random.integers(0, STRANGE, len(labels))
    known = (labels == owners) & (random.random(len(labels)) < 0.5)
    kept = np.ones(len(labels), dtype=bool) if nines else labels != STRANGE
    labels[~known] = -1
    return _with(data, labels, owners, "strange", kept, tested=data.test_labels.numpy() != STRANGE)


def _with(
    data: Dataset,
    labels: np.ndarray,
    owners: np.ndarray,
    name: str,
    kept: np.ndarray | slice = slice(None),
    tested: np.ndarray | slice = slice(None),
) -> Dataset:
    return Dataset.from_arrays(
        data.inputs.numpy()[kept],
        labels[kept],
        client=owners[kept],
        x_test=data.test_inputs.numpy()[tested],
        y_test=data.test_labels.numpy()[tested],
        normalisation=data.normalisation,
        name=name,
    )


def measured(data: Dataset, seed: int, *settings: str) -> dict[str, object]:
    """Train, and return accuracies in per cent."""
    config = fedpu.Config.load(overrides=[*SETTINGS, f"seed={seed}", *settings])
    result = fedpu.run(config, data=data)
    by_class = [round(100 * value, 1) for value in result.summary["per_class_accuracy"]]
    return {"accuracy": round(100 * result.accuracy, 2), "by class": by_class}


def main() -> None:
    """Measure everything, one line at a time."""
    found: dict[str, list[dict[str, object]]] = {}
    labelled = "labelling.positive=[[0,9],[1,2],[3,4],[5,6],[7,8]]"
    known = [labelled, "labelling.fraction=0.5", "labelling.overlap=true"]
    given = ["labelling.positive=as-given", "priors.source=given", "priors.values=0.1111111111"]
    estimated = ["labelling.positive=as-given", "priors.source=estimated"]
    for seed in SEEDS:
        for method in ("aligned", "fedpu", "supervised"):
            extra = ['augmentation.weak=["affine"]'] if method == "supervised" else []
            line = measured(lonely(seed), seed, f"method.name={method}", *known, *extra)
            found.setdefault(f"nines on one client, {method}", []).append(line)
        for method in ("aligned", "fedpu"):
            for nines in (False, True):
                with_ = "with" if nines else "without"
                for source, settings in (("even shares given", given), ("estimated", estimated)):
                    line = measured(strange(seed, nines), seed, f"method.name={method}", *settings)
                    found.setdefault(f"nobody labels nines, {with_} them, {method}, {source}", []).append(line)
        for name, lines in found.items():
            print(name, [line["accuracy"] for line in lines], flush=True)
    Path(__file__).with_name("results.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
