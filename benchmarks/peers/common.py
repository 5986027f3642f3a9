"""What every peer shares: the task, its data, its initial weights and its report. NumPy is all that it needs."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

LAUNCHED = float(os.environ.get("BENCHMARK_LAUNCHED", time.time()))
"""When the process was started: ``compare.py`` says so, because imports are part of starting up."""

BATCH_SIZE = 100
LEARNING_RATE = 0.01
MOMENTUM = 0.5
MEAN, STD = 0.1307, 0.3081

Array = np.ndarray[Any, np.dtype[Any]]
Weights = dict[str, Array]
"""A model's parameters by the names and in the shapes that PyTorch gives them."""

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "paper-cnn": {
        "0.weight": (3, 1, 5, 5),
        "0.bias": (3,),
        "3.weight": (20, 3, 5, 5),
        "3.bias": (20,),
        "7.weight": (50, 320),
        "7.bias": (50,),
        "9.weight": (10, 50),
        "9.bias": (10,),
    },
    "mlp": {"1.weight": (200, 784), "1.bias": (200,), "3.weight": (10, 200), "3.bias": (10,)},
    "colour-cnn": {
        "0.weight": (32, 3, 3, 3),
        "1.weight": (32,),
        "1.bias": (32,),
        "3.weight": (64, 32, 3, 3),
        "4.weight": (64,),
        "4.bias": (64,),
        "7.weight": (64, 64, 3, 3),
        "8.weight": (64,),
        "8.bias": (64,),
        "10.weight": (128, 64, 3, 3),
        "11.weight": (128,),
        "11.bias": (128,),
        "15.weight": (10, 128),
        "15.bias": (10,),
    },
}
COLOURED = {"colour-cnn"}
"""models of images with three channels of 32×32 pixels; those of the others have one of 28×28"""


@dataclass(frozen=True)
class Task:
    """What is run: client k holds the k-th ``examples`` rows of the data."""

    clients: int
    examples: int
    model: str
    rounds: int
    data: Path
    warmup: int = 1
    in_order: bool = False
    """take batches in the order of the data rather than shuffled"""
    save: Path | None = None
    """where the global model is written at the end"""

    @classmethod
    def of(cls, options: argparse.Namespace) -> Task:
        """Return the task that the command line asks for."""
        return cls(**{name: getattr(options, name) for name in cls.__dataclass_fields__})

    @property
    def all_rounds(self) -> int:
        """How many rounds are run in all."""
        return self.warmup + self.rounds


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the command line that every peer understands."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--clients", type=int, required=True)
    options.add_argument("--examples", type=int, required=True, help="examples a client")
    options.add_argument("--model", choices=list(SHAPES), default="paper-cnn")
    options.add_argument("--rounds", type=int, default=3, help="rounds that are timed")
    options.add_argument("--data", type=Path, required=True, help="an .npz file with images (uint8) and labels")
    options.add_argument("--warmup", type=int, default=1, help="rounds before those")
    options.add_argument("--in-order", action="store_true", help="do not shuffle")
    options.add_argument("--save", type=Path, help="write the final global model to this .npz file")
    return options


@functools.cache
def stored(task: Task) -> tuple[Array, Array]:
    """Return the images of all clients, (n, channels, height, width) in uint8, and their labels in int64."""
    count = task.clients * task.examples
    with np.load(task.data) as file:
        images, labels = file["images"][:count, None], file["labels"][:count].astype(np.int64)
    if task.model in COLOURED:
        images = np.random.default_rng(0).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    return images, labels


@functools.cache
def client_data(task: Task) -> tuple[Array, Array]:
    """Return the normalised images, (clients, examples, *shape) in float32, and the labels (clients, examples)."""
    images, labels = stored(task)
    values = (images.astype(np.float32) * np.float32(1 / 255) - np.float32(MEAN)) / np.float32(STD)
    size = (task.clients, task.examples)
    return values.reshape(*size, *images.shape[1:]), labels.reshape(size)


def initial_weights(model: str) -> Weights:
    """Return the same weights to every peer, as PyTorch initialises these layers.

    That is uniform on ±1/√fan-in, and 1 and 0 for the scale and the shift of a normalisation.
    """
    generator = np.random.default_rng(0)
    weights: Weights = {}
    bound = 0.0
    for name, shape in SHAPES[model].items():
        scale = name.endswith("weight") and len(shape) == 1
        if name.endswith("weight"):
            bound = 0.0 if scale else 1 / math.sqrt(math.prod(shape[1:]))
        weights[name] = float(scale) + generator.uniform(-bound, bound, shape).astype(np.float32)
    return weights


def report(task: Task, marks: Sequence[float], weights: Mapping[str, Array], packages: Sequence[str]) -> None:
    """Print the result as one line of JSON. ``marks`` are the clock at the start and after every round."""
    clock = time.time() - time.perf_counter()
    seconds = [after - before for before, after in itertools.pairwise(marks)]
    if task.save:
        np.savez(task.save, **weights)  # type: ignore[arg-type]  # taken for allow_pickle
    result = {
        "seconds": seconds[task.warmup :],
        "warmup_seconds": seconds[: task.warmup],
        "startup_seconds": clock + marks[0] - LAUNCHED,
        "finite": all(bool(np.isfinite(value).all()) for value in weights.values()),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }
    print(json.dumps(result), flush=True)
