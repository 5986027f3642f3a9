"""How the network and learning rate of the CIFAR-10 tables were chosen: ``python results/cifar-network/measure.py``.

Two clients of 5,000 training images each, all labelled, six rounds; judged on 2,500 other training images. Writes
``results.json`` beside this file: accuracies by network and learning rate, round by round, and seconds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import fedpu
from fedpu.data import Dataset

HERE = Path(__file__).parent
SETTINGS = [
    "partition.kind=iid",
    "partition.clients=2",
    "labelling.positive=10",
    "method.name=supervised",
    'augmentation.weak=["mirror","shift"]',
    "augmentation.shift=4",
    "augmentation.border=mean",
    "aggregation.rounds=6",
    "aggregation.batch_size=25",
    "aggregation.lr_decay=0.6",
    "aggregation.momentum=0.9",
    "engine.workers=1",
]
TRIED = [("standardised", 0.05), ("group", 0.05), ("batch", 0.05), ("standardised", 0.1), ("standardised", 0.02)]


def part() -> Dataset:
    """Return 12,500 training images of CIFAR-10, a fifth of them to judge by."""
    data = fedpu.load("cifar10")
    drawn = np.random.default_rng(7).permutation(len(data.labels))
    train, judge = drawn[:10_000], drawn[-2_500:]
    x, y = data.inputs.numpy(), data.labels.numpy()
    return Dataset.from_arrays(
        x[train], y[train], x_test=x[judge], y_test=y[judge], normalisation=data.normalisation, name="part"
    )


def main() -> None:
    """Measure what is tried, and write after each."""
    sys.path.insert(0, str(HERE))
    data, found = part(), []
    for network, lr in TRIED:
        config = fedpu.Config.load(overrides=[*SETTINGS, f"model.name=networks:{network}", f"aggregation.lr={lr}"])
        result = fedpu.run(config, data=data)
        accuracies = [round(100 * line["accuracy"], 1) for line in result.curve]
        found.append({"network": network, "lr": lr, "accuracies": accuracies, "seconds": result.summary["seconds"]})
        print(found[-1], flush=True)
        (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
