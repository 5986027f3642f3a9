"""ClientUpdate of Algorithm 1: what happens on a client in a round."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.engine.base import Job, ModelState, Update, Work
from fedpu.errors import TrainingError
from fedpu.randomness import torch_generator, torch_seed
from fedpu.risk import co_negatives


class ClientTrainer:
    """Runs ClientUpdate(k, w_t) with one network that is reused from client to client."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self.job = job
        self.device = device
        self.network = job.initial_model().to(device)
        self.co_negatives: Float[Tensor, "C C"] = co_negatives(job.federation.positive)

    def update(self, model: ModelState, work: Work) -> Update:
        """Train from the global ``model`` on the client's own data; return its new parameters."""
        job, k = self.job, work.client
        client = job.federation.client(k)
        task = job.method.task(client, self.co_negatives, len(job.federation))
        task = type(task)(*(value.to(self.device) for value in task))
        usable = (
            torch.arange(len(client.labels)) if job.method.uses_unlabelled else (client.labels >= 0).nonzero()[:, 0]
        )

        self.network.load_state_dict(model)
        self.network.train()
        anchor = [p.detach().clone() for p in self.network.parameters()] if work.proximal else []
        optimiser = torch.optim.SGD(
            self.network.parameters(), lr=work.lr, momentum=work.momentum, weight_decay=work.weight_decay
        )
        sums: dict[str, Tensor] = {}
        seen = 0
        # A network may draw random numbers of its own (dropout): those, too, depend on (seed, round, client) alone.
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(torch_seed(job.seed, "network", work.round, k))
            for positions in self._batches(usable, work):
                inputs, labels = client.batch(positions)
                terms = job.method.objective(self.network, inputs.to(self.device), labels.to(self.device), task)
                optimiser.zero_grad()
                terms["total"].backward()
                for parameter, start in zip(self.network.parameters(), anchor, strict=False):
                    assert parameter.grad is not None
                    parameter.grad.add_(parameter.detach() - start, alpha=work.proximal)
                optimiser.step()
                seen += len(positions)
                for name, term in terms.items():
                    sums[name] = sums.get(name, 0) + term.detach() * len(positions)
        state = {name: value.detach().to("cpu", copy=True) for name, value in self.network.state_dict().items()}
        _refuse_not_finite(state, work)
        means = {name: float(value) / seen for name, value in sums.items()}
        return Update(client=k, examples=int(job.federation.sizes[k]), model=state, terms=means)

    def _batches(self, usable: Int64[Tensor, " n"], work: Work) -> list[Int64[Tensor, " b"]]:
        """Return the positions of every batch: each local epoch a new order, a straggler's list cut short."""
        if len(usable) == 0:
            return []
        size = work.batch_size or len(usable)
        batches: list[Int64[Tensor, " b"]] = []
        for epoch in range(work.epochs):
            generator = torch_generator(self.job.seed, "batches", work.round, work.client, epoch)
            batches += usable[torch.randperm(len(usable), generator=generator)].split(size)
        return batches[: max(1, math.floor(work.share * len(batches)))]


def _refuse_not_finite(state: ModelState, work: Work) -> None:
    if all(bool(torch.isfinite(value).all()) for value in state.values()):
        return
    raise TrainingError(
        f"The parameters of client {work.client} stopped being numbers in round {work.round + 1} (NaN or infinity). "
        "Lower aggregation.lr, and keep method.clamp and a bounded surrogate on."
    )
