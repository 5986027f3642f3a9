"""A plain PyTorch loop with one thread: a deep copy of the model for every client; or several such processes."""

from __future__ import annotations

import copy
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import nn

from . import common, torch_models

Run = Callable[[nn.Module, range], common.Weights]
"""trains some clients from the global model; returns Σ n_k w_k"""


def main() -> None:
    """Run the task and report."""
    options = common.parser(__doc__)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--autocast", action="store_true", help="PyTorch's automatic mixed precision, in bfloat16")
    arguments = options.parse_args()
    task, processes = common.Task.of(arguments), arguments.processes
    torch.set_num_threads(1)
    torch_models.client_tensors(task)
    network = torch_models.build(task.model)
    run = partial(weighted_sum, task=task, autocast=arguments.autocast)
    marks = one_process(task, network, run) if processes == 1 else several_processes(task, network, processes, run)
    common.report(task, marks, torch_models.weights_of(network), ["torch", "numpy"])


def one_process(task: common.Task, network: nn.Module, run: Run) -> list[float]:
    """Train in this process."""
    marks = [time.perf_counter()]
    for _ in range(task.all_rounds):
        update(network, [run(network, range(task.clients))], task)
        marks.append(time.perf_counter())
    return marks


def several_processes(task: common.Task, network: nn.Module, processes: int, run: Run) -> list[float]:
    """Train in forked processes, which hold the data and an equal part of the clients each."""
    context = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    for index in range(processes):
        ours, theirs = context.Pipe()
        clients = range(index, task.clients, processes)
        context.Process(target=serve, args=(theirs, task, clients, run), daemon=True).start()
        pipes.append(ours)
    marks = [time.perf_counter()]
    for _ in range(task.all_rounds):
        weights = torch_models.weights_of(network)
        for pipe in pipes:
            pipe.send(weights)
        update(network, [pipe.recv() for pipe in pipes], task)
        marks.append(time.perf_counter())
    return marks


def serve(pipe: Connection, task: common.Task, clients: range, run: Run) -> None:
    """Answer every global model with the weighted sum of what the clients made of it, until the other side ends."""
    network = torch_models.build(task.model)
    while True:
        torch_models.load(network, pipe.recv())
        pipe.send(run(network, clients))


def weighted_sum(network: nn.Module, clients: range, task: common.Task, autocast: bool) -> common.Weights:
    """Return Σ_k n_k w_k over the clients."""
    images, labels = torch_models.client_tensors(task)
    sums = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    for client in clients:
        local = copy.deepcopy(network)
        torch_models.train(local, images[client], labels[client], task.in_order, autocast)
        for name, value in local.state_dict().items():
            sums[name] += task.examples * value
    return {name: value.numpy() for name, value in sums.items()}


def update(network: nn.Module, sums: list[common.Weights], task: common.Task) -> None:
    """Make the network the mean of the clients' models, weighted by n_k/n."""
    total = task.clients * task.examples
    torch_models.load(network, {name: np.sum([part[name] for part in sums], axis=0) / total for name in sums[0]})


if __name__ == "__main__":
    main()
