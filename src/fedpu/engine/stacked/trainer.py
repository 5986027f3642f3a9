"""ClientUpdate for a stack of clients at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.engine.base import Job, ModelState, Update, Work
from fedpu.engine.client import draw_batches, refuse_not_finite, usable_positions
from fedpu.engine.pool import Trainer
from fedpu.engine.stacked.network import StackedNetwork
from fedpu.labelling import Client
from fedpu.method import Forward
from fedpu.risk import PADDING, LinearRisk, Task, co_negatives, linear_risk, stacked

EXAMPLES = 256
"""examples that a step of a stack should have: fewer leave the cores idle, more leave the cache"""
FLOATS = 4_000_000
"""parameters that a stack may have in all: four buffers of that size are a worker's memory"""


def can_stack(job: Job) -> bool:
    """Can the clients of this job be trained in stacks?"""
    return job.method.needs_only_logits and StackedNetwork.of(job.initial_model()) is not None


def stacks(job: Job, work: Sequence[Work]) -> tuple[list[list[Work]], list[float]]:
    """Cut the work into stacks of clients of like size, whoever will run them; return them with their costs."""
    rows = job.federation.offsets.diff()
    length = sum(p.numel() for p in job.initial_model().parameters())
    order = sorted(work, key=lambda piece: (-int(rows[piece.client]), piece.client))
    pieces: list[list[Work]] = []
    index = 0
    while index < len(order):
        first = order[index]
        batch = min(int(rows[first.client]), first.batch_size or int(rows[first.client]))
        count = max(1, min(math.ceil(EXAMPLES / max(1, batch)), FLOATS // length))
        if batch >= EXAMPLES // 3:
            count = 1  # a full batch keeps a core busy by itself, and more workers can share the clients
        pieces.append(order[index : index + count])
        index += count
    return pieces, [sum(float(rows[w.client]) * w.epochs * w.share for w in piece) for piece in pieces]


@dataclass(frozen=True, eq=False)
class _Member:
    """A client of a stack: its data, the constants of its risk, and the batches it will see."""

    work: Work
    span: slice
    client: Client
    task: Task
    batches: list[Int64[Tensor, " _"]]


class StackTrainer(Trainer):
    """Runs ClientUpdate for stacks of clients, on one flat buffer of parameters."""

    def __init__(self, job: Job) -> None:
        network = StackedNetwork.of(job.initial_model())
        assert network is not None
        self.job = job
        self.network = network
        self.co_negatives = co_negatives(job.federation.positive)
        self.pixels = job.federation.inputs.flatten(1)
        normal, shape = job.federation.normalisation, job.federation.inputs.shape[1:]
        self.shape = tuple(shape)
        spread = math.prod(shape[1:])
        self.scale = (normal.scale / torch.tensor(normal.std)).repeat_interleave(spread)[:, None]
        self.shift = (-torch.tensor(normal.mean) / torch.tensor(normal.std)).repeat_interleave(spread)[:, None]

    def update(self, model: ModelState, work: list[Work]) -> Update:
        """Train all clients of a stack from the global ``model``; return their mean, weighted by n_k."""
        members = sorted((self._member(piece) for piece in work), key=lambda member: -len(member.batches))
        form = self.job.method.linear_form()
        tables = None if form is None else stacked([self.job.method.table(member.task) for member in members])
        start = self.network.flatten(model)
        flat = start.expand(len(members), -1).clone()
        gradient = torch.empty_like(flat)
        velocity = torch.zeros_like(flat) if work[0].momentum else None
        report = _Report(len(members))
        for step in range(len(members[0].batches)):
            # Members are sorted by their number of steps: those that are not done yet are the first ones.
            active = sum(len(member.batches) > step for member in members)
            inputs, labels = self._batch(members[:active], step)
            logits = self.network.forward(flat[:active], inputs).transpose(1, 2)
            if form is not None and tables is not None:
                table = LinearRisk(*(column[:active] for column in tables))
                pull, terms = linear_risk(logits, labels, table, form.clamp)
                names = form.names
            else:
                pull, terms, names = self._differentiate(logits, labels, members[:active])
            self.network.backward(flat[:active], pull.transpose(1, 2), gradient[:active])
            momentum = None if velocity is None else velocity[:active]
            _step(flat[:active], gradient[:active], momentum, start, work[0])
            report.add(terms, names, labels)
        refuse_not_finite([flat.sum(dim=1)], work[0])
        return self._mean(members, flat, report)

    def _member(self, work: Work) -> _Member:
        job = self.job
        client = job.federation.client(work.client)
        task = job.method.task(client, self.co_negatives, len(job.federation))
        usable = usable_positions(client, job.method)
        if len(usable) <= (work.batch_size or len(usable)) and work.epochs == 1:
            batches = [usable] if len(usable) else []  # one batch: its order has no meaning
        else:
            batches = draw_batches(usable, work, job.seed)
        return _Member(work, job.federation.span(work.client), client, task, batches)

    def _batch(self, members: list[_Member], step: int) -> tuple[Tensor, Int64[Tensor, "K N"]]:
        """Return the inputs (K, *shape, N), normalised, and the labels, shorter batches filled up with padding."""
        longest = max(len(member.batches[step]) for member in members)
        rows = torch.zeros(len(members), longest, dtype=torch.int64)
        labels = torch.full((len(members), longest), PADDING)
        for k, member in enumerate(members):
            positions = member.batches[step]
            rows[k, : len(positions)] = self.job.federation.rows[member.span][positions]
            labels[k, : len(positions)] = member.client.labels[positions]
        pixels = self.pixels[rows.view(-1)].view(len(members), longest, -1).transpose(1, 2)
        inputs = torch.empty(pixels.shape).copy_(pixels).mul_(self.scale).add_(self.shift)
        return inputs.view(len(members), *self.shape, longest), labels

    def _differentiate(
        self, logits: Float[Tensor, "K N C"], labels: Int64[Tensor, "K N"], members: list[_Member]
    ) -> tuple[Float[Tensor, "K N C"], Float[Tensor, "K T"], tuple[str, ...]]:
        """Return what ``linear_risk`` does, for any method, by automatic differentiation of one client at a time."""
        pull = torch.zeros_like(logits)
        rows: list[Tensor] = []
        names: tuple[str, ...] = ()
        for k, member in enumerate(members):
            count = int((labels[k] != PADDING).sum())
            leaf = logits[k, :count].detach().requires_grad_()
            terms = self.job.method.objective(_giving(leaf), leaf, labels[k, :count], member.task)
            (pull[k, :count],) = torch.autograd.grad(terms["total"], leaf)
            names = tuple(name for name in terms if name != "total")
            rows.append(torch.stack([terms[name].detach() for name in names]))
        return pull, torch.stack(rows), names

    def _mean(self, members: list[_Member], flat: Float[Tensor, "K D"], report: _Report) -> Update:
        examples = torch.tensor([int(self.job.federation.sizes[member.work.client]) for member in members])
        weights = examples.double() / examples.sum()
        return Update(
            client=members[0].work.client,
            examples=int(examples.sum()),
            model=self.network.unflatten(flat[0] if len(members) == 1 else (weights @ flat.double()).float()),
            terms=report.means(weights),
            clients=len(members),
        )


class _Report:
    """Adds up the terms of every client over its steps."""

    def __init__(self, members: int) -> None:
        self._names: tuple[str | None, ...] = ()
        self._sums = torch.zeros(members, 0)
        self._seen = torch.zeros(members)

    def add(self, terms: Float[Tensor, "K T"], names: tuple[str | None, ...], labels: Int64[Tensor, "K N"]) -> None:
        if not self._names:
            self._names, self._sums = names, torch.zeros(len(self._seen), len(names))
        sizes = (labels != PADDING).sum(dim=1).to(terms.dtype)
        self._sums[: len(terms)].addcmul_(terms, sizes[:, None])
        self._seen[: len(terms)] += sizes

    def means(self, weights: Float[Tensor, " K"]) -> dict[str, float]:
        """Return the mean of each term over the clients that trained, by their weights."""
        trained = self._seen > 0
        if not self._names or not bool(trained.any()):
            return {}
        share = weights[trained] / weights[trained].sum()
        values = (share @ (self._sums[trained].double() / self._seen[trained, None])).tolist()
        named = {name: value for name, value in zip(self._names, values, strict=True) if name is not None}
        return named | {"total": sum(values)}


def _step(
    flat: Float[Tensor, "K D"],
    gradient: Float[Tensor, "K D"],
    velocity: Float[Tensor, "K D"] | None,
    start: Float[Tensor, " D"],
    work: Work,
) -> None:
    """Take a step of SGD with momentum, weight decay and proximal term, on all parameters of all clients at once."""
    if work.weight_decay:
        gradient.add_(flat, alpha=work.weight_decay)
    if work.proximal:
        gradient.add_(flat, alpha=work.proximal).sub_(start, alpha=work.proximal)
    if velocity is not None:
        gradient = velocity.mul_(work.momentum).add_(gradient)
    flat.add_(gradient, alpha=-work.lr)


def _giving(logits: Float[Tensor, "N C"]) -> Forward:
    """Return a network that has been run already."""
    return lambda inputs: logits
