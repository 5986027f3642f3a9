"""ClientUpdate for a stack of clients at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.engine.base import Job, ModelState, Update, Work
from fedpu.engine.client import draw_batches, refuse_not_finite
from fedpu.engine.pool import Trainer
from fedpu.engine.stacked.network import StackedNetwork
from fedpu.method import Forward, Method
from fedpu.risk import PADDING, LinearRisk, Task, linear_risk

EXAMPLES = 128
"""examples that a step of a stack should have, or a pass of a full batch: fewer leave a core idle, more its cache"""
FLOATS = 4_000_000
"""parameters that a stack may have in all: a worker has three buffers of that size"""


def can_stack(job: Job) -> bool:
    """Can the clients of this job be trained in stacks?"""
    return job.method.needs_only_logits and StackedNetwork.of(job.initial_model()) is not None


def stacks(job: Job, work: Sequence[Work], parameters: int) -> tuple[list[list[Work]], list[float]]:
    """Cut the work into stacks of clients of like size, whoever will run them; return them with their costs."""
    entries = job.federation.offsets.diff().tolist()
    order = sorted(work, key=lambda piece: (-entries[piece.client], piece.client))
    pieces: list[list[Work]] = []
    start = 0
    while start < len(order):
        first = order[start]
        batch = max(1, min(entries[first.client], first.batch_size or entries[first.client]))
        single = batch >= entries[first.client] and first.epochs == 1
        count = math.ceil(EXAMPLES / batch)
        if not single:
            # Each client has parameters of its own; and a batch of some size keeps a core busy by itself.
            count = 1 if batch > EXAMPLES // 3 else max(1, min(count, FLOATS // parameters))
        if first.alone:
            count = 1
        pieces.append(order[start : start + count])
        start += count
    return pieces, [sum(entries[w.client] * w.epochs * w.share for w in piece) for piece in pieces]


class StackTrainer(Trainer):
    """Runs ClientUpdate for stacks of clients, on one flat buffer of parameters."""

    def __init__(self, job: Job) -> None:
        network = StackedNetwork.of(job.initial_model())
        assert network is not None
        self.job = job
        self.network = network
        self.co_negatives = job.negative_classes()
        # What the method learns from, in columns: client k has the entries offsets[k] … offsets[k + 1].
        federation = job.federation
        usable = torch.ones_like(federation.labels) if job.method.uses_unlabelled else (federation.labels >= 0).long()
        self.rows, self.labels = federation.rows[usable > 0], federation.labels[usable > 0]
        before = torch.cat([usable.new_zeros(1), usable.cumsum(0)])
        self.offsets: Int64[Tensor, " K1"] = before[federation.offsets]
        self.pixels = federation.inputs.flatten(1)
        normal, shape = federation.normalisation, tuple(federation.inputs.shape[1:])
        self.shape = shape
        spread = math.prod(shape[1:])
        self.scale = (normal.scale / torch.tensor(normal.std)).repeat_interleave(spread)
        self.shift = (-torch.tensor(normal.mean) / torch.tensor(normal.std)).repeat_interleave(spread)

    @torch.no_grad()
    def update(self, model: ModelState, work: list[Work]) -> Update:
        """Train all clients of a stack from the global ``model``; return their mean, weighted by n_k."""
        # Where gradients are written out there is nothing to be tracked, which makes each small operation cheaper.
        with torch.inference_mode(self.job.method.linear_form() is not None):
            return self._update(model, work)

    def _update(self, model: ModelState, work: list[Work]) -> Update:
        work, batches = self._plan(work)
        clients = torch.tensor([piece.client for piece in work])
        federation = self.job.federation
        facts = federation.facts(clients)
        if work[0].priors is not None:
            facts = facts._replace(priors=torch.tensor([piece.priors for piece in work]))
        task = self.job.method.task(facts, self.co_negatives, len(federation))
        objective = _Objective(self.job.method, task)
        examples = federation.sizes[clients]
        weights = examples.double() / examples.sum()
        start = self.network.flatten(model)
        if len(batches) == 1:
            mean = self._single_step(start, batches[0], objective, work[0], weights.float())
        else:
            mean = self._steps(start, batches, objective, work, weights)
        refuse_not_finite([mean], work[0])
        return Update(
            client=work[0].client,
            examples=int(examples.sum()),
            model=self.network.unflatten(mean),
            terms=objective.means(weights),
            clients=len(work),
        )

    def _steps(
        self,
        start: Float[Tensor, " D"],
        batches: list[Int64[Tensor, "_ _"]],
        objective: _Objective,
        work: list[Work],
        weights: Float[Tensor, " K"],
    ) -> Float[Tensor, " D"]:
        """Return the clients' mean after all of their steps, every client on parameters of its own."""
        flat = whole = start.expand(len(work), -1).clone()
        gradient = torch.empty_like(flat)
        velocity = torch.zeros_like(flat) if work[0].momentum else None
        parameters, gradients = self.network.views(flat), self.network.views(gradient)
        for positions in batches:
            # Clients are sorted by their number of steps: those that are not done yet are the first ones.
            active = len(positions)
            if active < len(flat):
                flat, gradient = flat[:active], gradient[:active]
                velocity = None if velocity is None else velocity[:active]
                parameters, gradients = self.network.views(flat), self.network.views(gradient)
            logits = self.network.forward(parameters, self._inputs(positions)).transpose(1, 2)
            pull = objective(logits, self._labels(positions))
            self.network.backward(parameters, pull.transpose(1, 2), gradients)
            _step(flat, gradient, velocity, start, work[0])
        return whole[0] if len(work) == 1 else (weights @ whole.double()).float()

    def _single_step(
        self,
        start: Float[Tensor, " D"],
        positions: Int64[Tensor, "A N"],
        objective: _Objective,
        work: Work,
        weights: Float[Tensor, " K"],
    ) -> Float[Tensor, " D"]:
        """Return the clients' mean after one step each, all of them on the parameters that they start from.

        Before their first step all clients have the same parameters, so the mean of their gradients is the gradient of
        their mean loss: no client needs parameters of its own. The loss of a batch is not a sum over its examples (it
        is clamped), so a batch of more than one pass goes forward twice: for its loss, then for each pass's gradient.
        """
        active, length = positions.shape
        real = (positions >= 0).view(-1)
        passes = positions.view(1, -1)[:, real].split(EXAMPLES, dim=1)
        classes = len(self.job.federation.classes)
        parameters = self.network.views(start[None])
        logits = start.new_zeros(active * length, classes)
        logits[real] = torch.cat([self.network.forward(parameters, self._inputs(part))[0].T for part in passes])
        pull = objective(logits.view(active, length, classes), self._labels(positions))
        pull = (pull * weights[:active, None, None]).view(-1, classes)[real]
        gradient = torch.zeros_like(start)[None]
        share = torch.empty_like(gradient)
        for part, pulled in zip(passes, pull.split(EXAMPLES), strict=True):
            if len(passes) > 1:
                self.network.forward(parameters, self._inputs(part))
            self.network.backward(parameters, pulled.T[None].contiguous(), self.network.views(share))
            gradient += share
        if work.weight_decay:
            gradient.add_(start, alpha=work.weight_decay * float(weights[:active].sum()))
        return start - work.lr * gradient[0]

    def _plan(self, work: list[Work]) -> tuple[list[Work], list[Int64[Tensor, "_ _"]]]:
        """Return the work sorted by its number of steps, and for each step the positions of every client's batch.

        A row of positions is a client's; −1 fills the shorter batches up.
        """
        clients = torch.tensor([piece.client for piece in work])
        first, count = self.offsets[clients], self.offsets[clients + 1] - self.offsets[clients]
        size = work[0].batch_size
        if work[0].epochs == 1 and (size is None or int(count.max()) <= size):  # one batch: its order has no meaning
            order = count.argsort(descending=True, stable=True)
            first, count = first[order], count[order]
            active = int((count > 0).sum())
            within = torch.arange(int(count.max()))
            positions = torch.where(within < count[:active, None], first[:active, None] + within, -1)
            return [work[index] for index in order.tolist()], [positions] if active else []
        plans = [
            [int(start) + batch for batch in draw_batches(torch.arange(int(length)), piece, self.job.seed)]
            for piece, start, length in zip(work, first, count, strict=True)
        ]
        ranks = sorted(range(len(work)), key=lambda index: -len(plans[index]))
        steps = len(plans[ranks[0]])
        return [work[index] for index in ranks], [
            torch.nn.utils.rnn.pad_sequence(
                [plans[index][step] for index in ranks if len(plans[index]) > step], batch_first=True, padding_value=-1
            )
            for step in range(steps)
        ]

    def _labels(self, positions: Int64[Tensor, "K N"]) -> Int64[Tensor, "K N"]:
        """Return the labels of a step."""
        return torch.where(positions < 0, PADDING, self.labels[positions.clamp(min=0)])

    def _inputs(self, positions: Int64[Tensor, "K N"]) -> Float[Tensor, "K *shape N"]:
        """Return the inputs of a step, normalised and with the batch innermost."""
        rows = self.rows.index_select(0, positions.clamp(min=0).view(-1))
        pixels = self.pixels.index_select(0, rows).to(torch.float32).mul_(self.scale).add_(self.shift)
        inputs = pixels.view(*positions.shape, -1).transpose(1, 2).contiguous()
        return inputs.view(len(positions), *self.shape, positions.shape[1])


class _Objective:
    """The loss of every client of a stack: its gradient with respect to the logits, and its terms added up over
    steps.
    """

    def __init__(self, method: Method, task: Task) -> None:
        self._method = method
        self._task = task
        self._form = method.linear_form()
        self._table = None if self._form is None else method.table(task)
        self._names: tuple[str, ...] = ()
        self._sums = torch.zeros(len(task.positive), 0)
        self._seen = torch.zeros(len(task.positive))

    def __call__(self, logits: Float[Tensor, "K N C"], labels: Int64[Tensor, "K N"]) -> Float[Tensor, "K N C"]:
        """Return the gradient for the first K clients."""
        if self._form is not None:
            names = self._form.names
            part = None if self._table is None else LinearRisk(*(column[: len(logits)] for column in self._table))
            pull, terms = linear_risk(logits, labels, part, self._form)
        else:
            pull, terms, names = self._differentiate(logits, labels)
        if not self._names:
            self._names, self._sums = names, torch.zeros(len(self._seen), len(names))
        sizes = (labels != PADDING).sum(dim=1, keepdim=True)
        self._sums[: len(terms)].addcmul_(terms, sizes)
        self._seen[: len(terms)] += sizes[:, 0]
        return pull

    def _differentiate(
        self, logits: Float[Tensor, "K N C"], labels: Int64[Tensor, "K N"]
    ) -> tuple[Float[Tensor, "K N C"], Float[Tensor, "K T"], tuple[str, ...]]:
        """Return what ``linear_risk`` does, for any method, by automatic differentiation of one client at a time."""
        pull = torch.zeros_like(logits)
        rows: list[Tensor] = []
        names: tuple[str, ...] = ()
        for k in range(len(logits)):
            count = int((labels[k] != PADDING).sum())
            own = Task(*(column[k] for column in self._task))
            with torch.enable_grad():
                leaf = logits[k, :count].detach().requires_grad_()
                terms = self._method.objective(_giving(leaf), leaf, labels[k, :count], own)
            (pull[k, :count],) = torch.autograd.grad(terms["total"], leaf)
            names = tuple(name for name in terms if name != "total")
            rows.append(torch.stack([terms[name].detach() for name in names]))
        return pull, torch.stack(rows), names

    def means(self, weights: Float[Tensor, " K"]) -> dict[str, float]:
        """Return the mean of each term over the clients that trained, by their weights."""
        trained = self._seen > 0
        if not self._names or not bool(trained.any()):
            return {}
        share = weights[trained] / weights[trained].sum()
        values = (share @ (self._sums[trained].double() / self._seen[trained, None])).tolist()
        return dict(zip(self._names, values, strict=True)) | {"total": sum(values)}


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
