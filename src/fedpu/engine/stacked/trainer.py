"""ClientUpdate for a stack of clients at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.engine.base import Job
from fedpu.engine.client import Begun, ClientTrainer, begin, end, refuse_not_finite
from fedpu.engine.pool import Piece, Trained, Trainer
from fedpu.engine.predict import client_outputs
from fedpu.engine.stacked.objective import Objective, UnknownInputs
from fedpu.engine.stacked.plan import Columns, Step
from fedpu.engine.stacked.probe import makes_inputs
from fedpu.engine.stacked.twin import Twin, twin_of, why_no_twin
from fedpu.engine.stacked.wide import WideNetwork
from fedpu.method import Method
from fedpu.risk import RiskConstants
from fedpu.round import Broadcast, ClientRule, Tensors, Update, Work, overrides

EXAMPLES = 128
"""examples that a step of a stack should have, or a pass of a full batch: fewer leave a core idle, more its cache"""
KEPT = 2**24
"""values of inputs whose passes are kept between their way forward and their way back"""
FLOATS = 4_000_000
"""parameters that a stack may have in all: a worker has three buffers of that size"""


_reasons: WeakKeyDictionary[Job, str | None] = WeakKeyDictionary()  # asked for several times at a run's start


def not_stacked_because(job: Job) -> str | None:
    """Say why the clients of this job can't be trained in stacks; nothing, where they can."""
    if job not in _reasons:
        _reasons[job] = _not_stacked_because(job)
    return _reasons[job]


def _not_stacked_because(job: Job) -> str | None:
    if overrides(job.rule, ClientRule, "choose_model"):
        return "with this aggregation clients choose the model that they start from, each for itself"
    if job.method.parts:
        return "the method moves parts of the model one after another"
    missing = why_no_twin(job.initial_model(), job.model.precision)
    if missing is None and makes_inputs(job):
        return "the method calls the network on inputs of its own making"
    return missing


def needs_each(job: Job, each: bool) -> bool:
    """Must every client of a stack have parameters of its own to the end?"""
    return each or job.has_rule or overrides(job.method, Method, "finish") or len(job.method.views) > 1


def stacks(job: Job, network: Twin, work: Sequence[Work], each: bool) -> tuple[list[Piece], list[float]]:
    """Cut the work into stacks of clients of like size, whoever will run them; return them with their costs."""
    entries = job.federation.offsets.diff().tolist()
    order = sorted(work, key=lambda one: (-entries[one.client], one.client))
    pieces: list[list[Work]] = []
    start = 0
    while start < len(order):
        first = order[start]
        batch = max(1, min(entries[first.client], first.batch_size or entries[first.client]))
        single = batch >= entries[first.client] and first.epochs == 1 and not needs_each(job, each)
        # A stack whose examples go through in one pass goes forward once.
        count = max(1, EXAMPLES // batch)
        if not single:
            # Each client has parameters of its own; and a batch of some size, or a wide network, keeps a core busy.
            alone = batch > EXAMPLES // 3 or isinstance(network, WideNetwork)
            most = 1 if alone else max(1, min(math.ceil(EXAMPLES / batch), FLOATS // network.length))
            # Ten clients in stacks of seven at most are two stacks of five: no worker waits for another.
            left = len(order) - start
            count = math.ceil(left / math.ceil(left / most))
        pieces.append(order[start : start + count])
        start += count
    costs = [sum(entries[one.client] * one.epochs * one.share for one in piece) for piece in pieces]
    return [Piece(piece, {}, each) for piece in pieces], costs


class StackTrainer(Trainer):
    """Runs ClientUpdate for stacks of clients, on one flat buffer of parameters."""

    def __init__(self, job: Job) -> None:
        self.module = job.initial_model()
        network = twin_of(self.module, job.model.precision)
        assert network is not None
        self.job = job
        self.network = network
        self.negatives = job.co_negatives()
        self.columns = Columns(job)

    @torch.no_grad()
    def update(self, sent: Broadcast, piece: Piece) -> list[Trained]:
        """Train all clients of a stack from what the server sent; return their mean, weighted by n_k, or each."""
        # Where gradients are written out there is nothing to be tracked, which makes each small operation cheaper.
        tracked = self.job.method.linear_form() is None or self.job.stateful
        try:
            with torch.inference_mode(not tracked):
                return self._update(sent, piece)
        except UnknownInputs:
            # The method calls the network on inputs of its own making, which a stack can't foresee, and did not do so
            # when it was tried out. The next piece is tried again: what becomes of it must not depend on the worker
            # that it comes to.
            with torch.enable_grad():
                return self._plain.update(sent, piece)

    @cached_property
    def _plain(self) -> ClientTrainer:
        return ClientTrainer(self.job, torch.device("cpu"))

    def _update(self, sent: Broadcast, piece: Piece) -> list[Trained]:
        work, steps = self.columns.plan(piece.work)
        federation = self.job.federation
        begun = self._begin(sent, work, piece.states) if self.job.stateful else []
        clients = torch.tensor([one.client for one in work])
        objective = Objective(self.job.method, self._constants(clients, begun), begun, work[0].round)
        examples = federation.sizes[clients]
        weights = examples.double() / examples.sum()
        start = self.network.flatten(sent.model)
        corrections = self._corrections(sent, work, begun)
        if needs_each(self.job, piece.each):
            whole = self._steps(start, steps, objective, work, corrections)
            refuse_not_finite([whole], work[0])
            return self._each(sent, work, begun, whole, objective)
        if len(steps) == 1 and corrections.offset is None:
            mean = self._single_step(start, steps[0], objective, work[0], weights.float())
        else:
            whole = self._steps(start, steps, objective, work, corrections)
            mean = whole[0] if len(work) == 1 else (weights @ whole.double()).float()
        refuse_not_finite([mean], work[0])
        return [self._mean(sent, work, begun, mean, objective, weights)]

    def _begin(self, sent: Broadcast, work: list[Work], states: dict[int, Tensors]) -> list[Begun]:
        """Let every client begin, where there is more to an update than its steps."""
        job = self.job
        return [
            begin(
                job,
                self.module,
                job.federation.client(one.client),
                sent,
                one,
                states.get(one.client),
                self.negatives,
            )
            for one in work
        ]

    def _constants(self, clients: Int64[Tensor, " K"], begun: list[Begun]) -> RiskConstants:
        if begun:
            return RiskConstants(
                *(torch.stack(column) for column in zip(*(one.constants for one in begun), strict=True))
            )
        federation = self.job.federation
        return self.job.method.constants(federation.summary(clients), self.negatives, self.job.population)

    def _corrections(self, sent: Broadcast, work: list[Work], begun: list[Begun]) -> Corrections:
        """Return what the aggregation adds to the gradients of the stack."""
        own = [one.correction for one in begun] or [self.job.rule.correction(sent, one, {}) for one in work]
        proximal = torch.tensor([one.proximal for one in own])[:, None]
        none = torch.zeros(self.network.length)
        offsets = [self.network.flatten(one.offset) if one.offset else none for one in own]
        return Corrections(
            proximal if bool(proximal.any()) else None,
            torch.stack(offsets) if any(one.offset for one in own) else None,
        )

    def _mean(
        self,
        sent: Broadcast,
        work: list[Work],
        begun: list[Begun],
        mean: Float[Tensor, " D"],
        objective: Objective,
        weights: Float[Tensor, " K"],
    ) -> Trained:
        """Return the clients of a stack as one update, and their states."""
        states: dict[int, Tensors] = {}
        shared: Tensors = {}
        for one, own, weight in zip(work, begun, weights.tolist(), strict=False):
            ended, states[one.client] = end(self.job, own, sent, {}, 0, own.now.outputs)
            for name, value in ended.shared.items():
                shared[name] = shared.get(name, 0) + weight * value.double()
        update = Update(
            client=work[0].client,
            examples=int(self.job.federation.sizes[[one.client for one in work]].sum()),
            model=self.network.unflatten(mean),
            terms=objective.mean(weights),
            shared={name: value.float() for name, value in shared.items()},
            clients=len(work),
        )
        return Trained(update, states)

    def _each(
        self,
        sent: Broadcast,
        work: list[Work],
        begun: list[Begun],
        whole: Float[Tensor, "K D"],
        objective: Objective,
    ) -> list[Trained]:
        """Return every client's update by itself, with its state."""
        done: list[Trained] = []
        for k, one in enumerate(work):
            model = self.network.unflatten(whole[k])
            examples = int(self.job.federation.sizes[one.client])
            update = Update(one.client, examples, model, objective.terms(k))
            states: dict[int, Tensors] = {}
            if begun:
                outputs = partial(self._outputs, begun[k], model)
                ended, states[one.client] = end(self.job, begun[k], sent, model, objective.steps[k], outputs)
                update = replace(update, extras=ended.extras, shared=ended.shared)
            done.append(Trained(update, states))
        return done

    def _outputs(self, begun: Begun, model: Tensors) -> Float[Tensor, "r C"]:
        self.module.load_state_dict(model)
        return client_outputs(begun.client, self.module)

    def _steps(
        self,
        start: Float[Tensor, " D"],
        steps: list[Step],
        objective: Objective,
        work: list[Work],
        corrections: Corrections,
    ) -> Float[Tensor, "K D"]:
        """Return every client's parameters after all of its steps."""
        flat = whole = start.expand(len(work), -1).clone()
        gradient = torch.empty_like(flat)
        velocity = torch.zeros_like(flat) if work[0].momentum else None
        parameters, gradients = self.network.views(flat), self.network.views(gradient)
        for step in steps:
            # Clients are sorted by their number of steps: those that are not done yet are the first ones.
            active = len(step.positions)
            if active < len(flat):
                flat, gradient = flat[:active], gradient[:active]
                velocity = None if velocity is None else velocity[:active]
                parameters, gradients = self.network.views(flat), self.network.views(gradient)
            views = self.columns.inputs(step)
            inputs = next(iter(views.values())) if len(views) == 1 else torch.cat(list(views.values()), dim=-1)
            logits = self.network.forward(parameters, inputs).transpose(1, 2)
            slopes = objective(logits, self.columns.labels(step), step, self.columns, views)
            self.network.backward(parameters, slopes.transpose(1, 2), gradients)
            _descend(flat, gradient, velocity, start, work[0], corrections)
        return whole

    def _single_step(
        self,
        start: Float[Tensor, " D"],
        step: Step,
        objective: Objective,
        work: Work,
        weights: Float[Tensor, " K"],
    ) -> Float[Tensor, " D"]:
        """Return the clients' mean after one step each, all of them on the parameters that they start from.

        Before their first step all clients have the same parameters, so the mean of their gradients is the gradient of
        their mean loss: no client needs parameters of its own. The loss of a batch is not a sum over its examples (it
        is clamped): every pass goes forward for it before the first one goes back. What they need for that is kept as
        far as there is room; the others go forward again.
        """
        active, length = step.positions.shape
        real = (step.positions >= 0).view(-1)
        passes = self.columns.passes(step, EXAMPLES)
        classes = len(self.job.federation.classes)
        parameters = self.network.views(start[None])
        logits = start.new_zeros(active * length, classes)
        networks = self._networks(len(passes))
        logits[real] = torch.cat(
            [
                network.forward(parameters, self.columns.only(part))[0].T
                for network, part in zip(networks, passes, strict=True)
            ]
        )
        views = {} if objective.form is not None else self.columns.inputs(step)
        slopes = objective(logits.view(active, length, classes), self.columns.labels(step), step, self.columns, views)
        slopes = (slopes * weights[:active, None, None]).view(-1, classes)[real]
        gradient = torch.zeros_like(start)[None]
        share = torch.empty_like(gradient)
        for network, part, own in zip(networks, passes, slopes.split(EXAMPLES), strict=True):
            if network is self.network and len(passes) > 1:
                network.forward(parameters, self.columns.only(part))
            network.backward(parameters, own.T[None].contiguous(), self.network.views(share))
            gradient += share
        if work.weight_decay:
            gradient.add_(start, alpha=work.weight_decay * float(weights[:active].sum()))
        return start - work.lr * gradient[0]

    def _networks(self, passes: int) -> list[Twin]:
        """Return the network for each pass: one that remembers it where there is room, or else the one of them all."""
        if isinstance(self.network, WideNetwork):  # what it keeps is many times its inputs
            return [self.network] * passes
        room = KEPT // (EXAMPLES * math.prod(self.columns.shape))
        return [self.network.apart() if number < room else self.network for number in range(passes)]


class Corrections(NamedTuple):
    """What the aggregation adds to the gradients of a stack."""

    proximal: Float[Tensor, "K 1"] | None
    offset: Float[Tensor, "K D"] | None


def _descend(
    flat: Float[Tensor, "K D"],
    gradient: Float[Tensor, "K D"],
    velocity: Float[Tensor, "K D"] | None,
    start: Float[Tensor, " D"],
    work: Work,
    corrections: Corrections,
) -> None:
    """Take a step of SGD with momentum, weight decay and corrections, on all parameters of all clients at once."""
    if work.weight_decay:
        gradient.add_(flat, alpha=work.weight_decay)
    if corrections.proximal is not None:
        gradient.addcmul_(flat - start, corrections.proximal[: len(gradient)])
    if corrections.offset is not None:
        gradient.add_(corrections.offset[: len(gradient)])
    if velocity is not None:
        gradient = velocity.mul_(work.momentum).add_(gradient)
    flat.add_(gradient, alpha=-work.lr)
