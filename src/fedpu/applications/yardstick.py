"""Plain PyTorch as the yardstick of an engine: the loop that anybody would write who simulates federated averaging.

One network per process, reused from client to client; ``torch.optim.SGD``; batches by index from examples that lie in
memory as normalised floats before the first round; cross-entropy; one thread per process. With several processes each
stays alive, holds the data, and has every P-th client.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
import torch.nn.functional as F
from jaxtyping import Int64, Num
from torch import Tensor, nn

from fedpu.engine import Job
from fedpu.round import Tensors, Work


@dataclass(frozen=True, eq=False)
class PlainClients:
    """What plain clients learn from: the examples of client k are ``offsets[k] … offsets[k + 1]``."""

    job: Job
    inputs: Num[Tensor, "n *shape"]
    labels: Int64[Tensor, " n"]
    offsets: Int64[Tensor, " K1"]

    @classmethod
    def of(cls, job: Job) -> PlainClients:
        """Normalise the examples of a job. Their classes are made up: what they are changes no time."""
        federation = job.federation
        parts = [federation.normalisation(part) for part in federation.inputs.split(4096)]
        classes = torch.arange(len(federation.inputs)) % len(federation.classes)
        offsets = torch.cat([federation.sizes.new_zeros(1), federation.sizes.cumsum(0)])
        return cls(job, torch.cat(parts), classes, offsets)

    def weighted_sum(self, network: nn.Module, model: Tensors, work: Sequence[Work]) -> Tensors:
        """Return Σ_k n_k w_k over the clients that are asked."""
        sums = {name: torch.zeros_like(value) for name, value in model.items()}
        for one in work:
            mine = slice(int(self.offsets[one.client]), int(self.offsets[one.client + 1]))
            network.load_state_dict(model)
            train(network, self.inputs[mine], self.labels[mine], one)
            for name, value in network.state_dict().items():
                if value.is_floating_point():
                    sums[name].add_(value, alpha=mine.stop - mine.start)
        return sums


def train(network: nn.Module, inputs: Num[Tensor, "n *shape"], labels: Int64[Tensor, " n"], work: Work) -> None:
    """Run local epochs of SGD."""
    network.train()
    optimiser = torch.optim.SGD(
        network.parameters(), lr=work.lr, momentum=work.momentum, weight_decay=work.weight_decay
    )
    for _ in range(work.epochs):
        for batch in torch.randperm(len(labels)).split(work.batch_size or len(labels)):
            optimiser.zero_grad()
            F.cross_entropy(network(inputs[batch]), labels[batch]).backward()
            optimiser.step()


class PlainRounds:
    """Rounds of plain clients, in this process or on several."""

    def __init__(self, clients: PlainClients, network: nn.Module, pipes: list[Connection]) -> None:
        self._clients = clients
        self._network = network
        self._pipes = pipes
        self._model = {name: value.clone() for name, value in network.state_dict().items()}

    def run(self, work: Sequence[Work]) -> None:
        """Run one round: the global model becomes the mean of the clients' models, weighted by n_k/n."""
        if self._pipes:
            for index, pipe in enumerate(self._pipes):
                pipe.send(
                    ({name: value.numpy() for name, value in self._model.items()}, work[index :: len(self._pipes)])
                )
            received = [pipe.recv() for pipe in self._pipes]
            sums = [{name: torch.from_numpy(value) for name, value in part.items()} for part in received]
        else:
            sums = [self._clients.weighted_sum(self._network, self._model, work)]
        total = sum(int(self._clients.job.federation.sizes[one.client]) for one in work)
        for name, value in self._model.items():
            if value.is_floating_point():
                self._model[name] = sum((part[name] for part in sums), torch.zeros(())) / total


@contextmanager
def plain_rounds(job: Job, processes: int) -> Iterator[PlainRounds]:
    """Start the processes."""
    torch.set_num_threads(1)
    clients, pipes = PlainClients.of(job), []
    if processes > 1:
        context = multiprocessing.get_context("fork")
        for _ in range(processes):
            ours, theirs = context.Pipe()
            context.Process(target=_serve, args=(theirs, clients), daemon=True).start()
            pipes.append(ours)
    try:
        yield PlainRounds(clients, job.initial_model(), pipes)
    finally:
        for pipe in pipes:
            pipe.send(None)
        for process in multiprocessing.active_children():
            process.join()


def _serve(pipe: Connection, clients: PlainClients) -> None:
    """Answer every global model with the weighted sum of what the clients made of it."""
    torch.set_num_threads(1)
    network = clients.job.initial_model()
    while (asked := pipe.recv()) is not None:
        model, work = asked
        received = {name: torch.from_numpy(value) for name, value in model.items()}
        sums = clients.weighted_sum(network, received, work)
        pipe.send({name: value.numpy() for name, value in sums.items()})
