"""Our own engines, by their name, through the Python API: the supervised method on the same data and clients."""

from __future__ import annotations

import dataclasses
import time
from functools import partial

import numpy as np
import torch

from fedpu import Config, Dataset, prepare
from fedpu.algorithm import rounds
from fedpu.applications.training import first_state, job_of
from fedpu.data.dataset import Normalisation
from fedpu.method import shuffled_batches
from fedpu.partition import Partition
from fedpu.randomness import torch_generator

from . import common


def main() -> None:
    """Run the task and report."""
    options = common.parser(__doc__)
    options.add_argument("--engine", required=True)
    options.add_argument("--precision", default="float32")
    arguments = options.parse_args()
    task = common.Task.of(arguments)
    config = configuration(task, arguments.engine, arguments.precision)
    prepared = prepare(config, dataset(task), partition(task, config))
    job = job_of(config, prepared.federation)
    weights = {name: torch.from_numpy(value) for name, value in common.initial_weights(task.model).items()}
    state = first_state(config, job.initial_model(), task.clients, len(prepared.federation.classes))
    state = dataclasses.replace(state, model=weights)
    with config.engine.start(job) as clients:
        marks = [time.perf_counter()]
        for done in rounds(clients, config.aggregation, state, config.seed):
            state = done.state
            marks.append(time.perf_counter())
    result = {name: value.numpy() for name, value in state.model.items()}
    common.report(task, marks, result, ["fedpu", "torch", "numpy"])


def configuration(task: common.Task, engine: str, precision: str) -> Config:
    """Return the task as a configuration."""
    settings = {
        "engine.name": engine,
        "method.name": "supervised",
        "model.name": task.model,
        "model.precision": precision,
        "aggregation.name": "fedavg",
        "aggregation.rounds": task.all_rounds,
        "aggregation.batch_size": common.BATCH_SIZE,
        "aggregation.lr": common.LEARNING_RATE,
        "aggregation.lr_decay": 1.0,
        "aggregation.momentum": common.MOMENTUM,
    }
    return Config.load(overrides=[f"{key}={value}" for key, value in settings.items()])


def dataset(task: common.Task) -> Dataset:
    """Return the stored images as they came; fedpu normalises them in the rounds."""
    images, labels = common.stored(task)
    channels = images.shape[1]
    return Dataset.from_arrays(
        images,
        labels,
        x_test=images[:1],
        y_test=labels[:1],
        classes=[str(digit) for digit in range(10)],
        normalisation=Normalisation(1 / 255, (common.MEAN,) * channels, (common.STD,) * channels),
    )


def partition(task: common.Task, config: Config) -> Partition:
    """Return the same clients as the peers'.

    fedpu draws its own order of the examples. To take them in the order of the data in the first round, they are laid
    down so that its draws put them there.
    """
    rows = np.arange(task.clients * task.examples).reshape(task.clients, task.examples)
    in_turn = Partition.of(list(rows))
    if not task.in_order:
        return in_turn
    shuffled = in_turn.shuffled(config.seed, dataset(task).order_key)
    laid = np.empty_like(rows)
    for work in config.aggregation.work(config.seed, 0, list(range(task.clients))):
        generator = partial(torch_generator, config.seed, "batches", work.round, work.client)
        drawn = torch.cat(shuffled_batches(torch.arange(task.examples), work, generator)).numpy()
        taken = shuffled[work.client][drawn] - rows[work.client, 0]
        laid[work.client, taken] = rows[work.client]
    return Partition.of(list(laid))


if __name__ == "__main__":
    main()
