"""ClientUpdate of Algorithm 1: what happens on a client in a round."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fedpu.engine.base import Job, ModelState, Update, Work, copy_state
from fedpu.engine.pool import Trainer
from fedpu.errors import TrainingError
from fedpu.labelling import Client
from fedpu.method import Method
from fedpu.randomness import torch_generator, torch_seed
from fedpu.risk import Task


class ClientTrainer(Trainer):
    """Runs ClientUpdate(k, w_t) with one network that is reused from client to client."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self.job = job
        self.device = device
        self.network = job.initial_model().to(device)
        self.co_negatives: Float[Tensor, "C C"] = job.negative_classes()

    def update(self, model: ModelState, work: Work) -> Update:
        """Train from the global ``model`` on the client's own data; return its new parameters."""
        job = self.job
        client = job.federation.client(work.client)
        return update_client(self.network, model, client, job.method, self.task(work), work, job.seed)

    def task(self, work: Work) -> Task:
        """Return the constants of the client's risk, with its class priors as it knows them by now."""
        job = self.job
        facts = job.federation.client(work.client).facts
        if work.priors is not None:
            facts = facts._replace(priors=torch.tensor(work.priors))
        return job.method.task(facts, self.co_negatives, len(job.federation))


def update_client(
    network: nn.Module, model: ModelState, client: Client, method: Method, task: Task, work: Work, seed: int
) -> Update:
    """Run ClientUpdate(k, w_t): train ``network`` from the global ``model`` on one client's own data."""
    device = next(network.parameters()).device
    task = type(task)(*(value.to(device) for value in task))

    network.load_state_dict(model)
    network.train()
    anchor = [p.detach().clone() for p in network.parameters()] if work.proximal else []
    optimiser = torch.optim.SGD(
        network.parameters(), lr=work.lr, momentum=work.momentum, weight_decay=work.weight_decay
    )
    sums: dict[str, Tensor] = {}
    seen = 0
    # A network may draw random numbers of its own (dropout): those, too, depend on (seed, round, client) alone.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(torch_seed(seed, "network", work.round, work.client))
        for positions in draw_batches(usable_positions(client, method), work, seed):
            inputs, labels = client.batch(positions)
            terms = method.objective(network, inputs.to(device), labels.to(device), task)
            optimiser.zero_grad()
            terms["total"].backward()
            for parameter, start in zip(network.parameters(), anchor, strict=False):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach() - start, alpha=work.proximal)
            optimiser.step()
            seen += len(positions)
            for name, term in terms.items():
                sums[name] = sums.get(name, 0) + term.detach() * len(positions)
    state = copy_state(network)
    refuse_not_finite(state.values(), work)
    means = {name: float(value) / seen for name, value in sums.items()}
    return Update(client=work.client, examples=len(client.inputs), model=state, terms=means)


def usable_positions(client: Client, method: Method) -> Int64[Tensor, " n"]:
    """Return the positions of the examples that the method learns from."""
    if method.uses_unlabelled:
        return torch.arange(len(client.labels))
    return (client.labels >= 0).nonzero()[:, 0]


def draw_batches(usable: Int64[Tensor, " n"], work: Work, seed: int) -> list[Int64[Tensor, " _"]]:
    """Return the positions of every batch: each local epoch a new order, a straggler's list cut short."""
    if len(usable) == 0:
        return []
    size = work.batch_size or len(usable)
    batches: list[Int64[Tensor, " _"]] = []
    for epoch in range(work.epochs):
        generator = torch_generator(seed, "batches", work.round, work.client, epoch)
        batches += usable[torch.randperm(len(usable), generator=generator)].split(size)
    return batches[: max(1, math.floor(work.share * len(batches) + 1e-9))]


def refuse_not_finite(values: Iterable[Tensor], work: Work) -> None:
    """Refuse parameters that are no numbers."""
    if all(bool(torch.isfinite(value).all()) for value in values):
        return
    raise TrainingError(
        f"The parameters of client {work.client} stopped being numbers in round {work.round + 1} (NaN or infinity). "
        "Lower aggregation.lr, and keep method.clamp and a bounded surrogate on; where many clients label the same "
        "classes, method.lent = 'shared' keeps the lent term small."
    )
