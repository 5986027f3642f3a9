"""Which method to suggest for a small table whose class shares nobody knows: python results/suggestion/measure.py.

Four tables, three seeds each: who holds which row, which rows are labelled, and the first model are drawn anew. Every
run has the settings that ``fedpu.config_for`` chooses, but for the method, and a fifth of every client's data held out.
The choice is by the score on what is held out, which needs no hidden label; test accuracy stands beside it, unused.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.model_selection import train_test_split

import fedpu

OUT = Path(__file__).parent / "cells.json"
METHODS = ("fedpu", "aligned", "labelled-only", "positive-only")
SEEDS = (0, 1, 2)
TABLES = {"wine": 1, "breast cancer": 1, "digits": 2, "made up": 1}
"""classes that each client labels half of"""


def arrays(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and true classes."""
    if name == "made up":
        return make_classification(2500, 20, n_informative=8, n_classes=4, n_clusters_per_class=1, random_state=0)
    loaded: Any = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}[name]()
    return loaded.data, loaded.target


def table(name: str, seed: int) -> fedpu.Dataset:
    """Hand out a table: every client has rows of all classes, and has labelled half of the rows of its own classes."""
    x, y = arrays(name)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.25, random_state=seed, stratify=y)
    rng, each = np.random.default_rng(seed), TABLES[name]
    clients = (int(y.max()) + 1) // each
    owner = rng.integers(0, clients, len(y))
    labelled = (y // each == owner) & (rng.random(len(y)) < 0.5)
    given = np.where(labelled, y, -1)
    x, x_test = x.astype(np.float32), x_test.astype(np.float32)
    return fedpu.Dataset.from_arrays(x, given, client=owner, x_test=x_test, y_test=y_test, name=name)


def measure(name: str, method: str, seed: int) -> dict[str, Any]:
    """Train once; return score and accuracy."""
    data = table(name, seed)
    settings = [f"method.name={method}", f"seed={seed}", "evaluation.validation=0.2", "evaluation.every=50"]
    result = fedpu.run(fedpu.config_for(data, *settings, "engine.workers=1"), data=data)
    told = {"table": name, "method": method, "seed": seed, "validation": result.summary["validation"]}
    return told | {"labelled_accuracy": result.summary["validation_accuracy"], "test_accuracy": result.accuracy}


def main() -> None:
    """Measure all cells, and print one line per table and method."""
    cells = [measure(name, method, seed) for name in TABLES for method in METHODS for seed in SEEDS]
    OUT.write_text(json.dumps(cells, indent=1) + "\n")
    for name in TABLES:
        for method in METHODS:
            mine = [cell for cell in cells if (cell["table"], cell["method"]) == (name, method)]
            score, accuracy = (statistics.fmean(cell[key] for cell in mine) for key in ("validation", "test_accuracy"))
            print(f"| {name} | {method} | {score:.4f} | {100 * accuracy:.1f} % |")


if __name__ == "__main__":
    main()
