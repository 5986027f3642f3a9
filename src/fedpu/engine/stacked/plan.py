"""The data of a job in columns, and the steps of a stack of clients on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from fedpu.augmentation import join
from fedpu.engine.base import Job
from fedpu.engine.views import draw_view
from fedpu.method.batches import shuffled_batches
from fedpu.randomness import torch_generator
from fedpu.risk import PADDING
from fedpu.round import Tensors, Work


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a stack: the columns of every client's batch, in rows; −1 fills the shorter ones up."""

    positions: Int64[Tensor, "K N"]
    drawn: dict[str, Tensors]
    """by view, what is done to each of the K·N examples"""


class Columns:
    """What the method learns from: client k has the entries offsets[k] … offsets[k + 1]."""

    def __init__(self, job: Job) -> None:
        federation = job.federation
        self.job = job
        self.default_batches = job.method.shuffles
        self.views = {name: job.augmentation.view(name) for name in job.method.views}
        self.augmented = any(map(bool, self.views.values()))
        every = job.method.uses_unlabelled or not self.default_batches
        usable = torch.ones_like(federation.labels) if every else (federation.labels >= 0).long()
        self.rows, self.targets = federation.rows[usable > 0], federation.labels[usable > 0]
        self.places = (torch.arange(len(usable)) - federation.offsets[federation.owner])[usable > 0]
        """which of its client's entries each column is"""
        before = torch.cat([usable.new_zeros(1), usable.cumsum(0)])
        self.offsets: Int64[Tensor, " K1"] = before[federation.offsets]
        self.pixels = federation.inputs.flatten(1)
        normal, self.shape = federation.normalisation, tuple(federation.inputs.shape[1:])
        spread = math.prod(self.shape[1:])
        self.scale = (normal.scale / torch.tensor(normal.std)).repeat_interleave(spread)
        self.shift = (-torch.tensor(normal.mean) / torch.tensor(normal.std)).repeat_interleave(spread)

    def plan(self, work: list[Work]) -> tuple[list[Work], list[Step]]:
        """Return the work sorted by its number of steps, and every step of the stack."""
        clients = torch.tensor([one.client for one in work])
        first, count = self.offsets[clients], self.offsets[clients + 1] - self.offsets[clients]
        size = work[0].batch_size
        in_one = work[0].epochs == 1 and (size is None or int(count.max()) <= size)
        if in_one and self.default_batches and not self.augmented:  # one batch: its order has no meaning
            order = count.argsort(descending=True, stable=True)
            first, count = first[order], count[order]
            active = int((count > 0).sum())
            within = torch.arange(int(count.max()))
            positions = torch.where(within < count[:active, None], first[:active, None] + within, -1)
            return [work[index] for index in order.tolist()], [Step(positions, {})] if active else []
        plans = [
            [int(start) + batch for batch in self._batches(one, int(start), int(length))]
            for one, start, length in zip(work, first, count, strict=True)
        ]
        ranks = sorted(range(len(work)), key=lambda index: -len(plans[index]))
        ordered = [work[index] for index in ranks]
        return ordered, [
            self._step(
                [plans[index][step] for index in ranks if len(plans[index]) > step],
                ordered,
                step,
            )
            for step in range(len(plans[ranks[0]]))
        ]

    def _batches(self, work: Work, start: int, length: int) -> list[Int64[Tensor, " _"]]:
        generator = partial(torch_generator, self.job.seed, "batches", work.round, work.client)
        if self.default_batches:  # of columns that are all usable
            return shuffled_batches(torch.arange(length), work, generator)
        return self.job.method.batches(self.targets[start : start + length], work, generator)

    def _step(self, batches: list[Int64[Tensor, " _"]], work: list[Work], index: int) -> Step:
        positions = torch.nn.utils.rnn.pad_sequence(batches, batch_first=True, padding_value=-1)
        drawn: dict[str, Tensors] = {}
        for name, view in self.views.items():
            if view:
                own = [
                    draw_view(self.job, view, name, len(batch), one.round, one.client, index)
                    for batch, one in zip(batches, work, strict=False)
                ]
                drawn[name] = join(own, padded=True)
        return Step(positions, drawn)

    def passes(self, step: Step, size: int) -> list[Step]:
        """Return a step's examples without filling, cut into steps of one row."""
        real = (step.positions >= 0).view(-1)
        parts = step.positions.view(1, -1)[:, real].split(size, dim=1)
        drawn = {
            name: {key: value[real].split(size) for key, value in tensors.items()}
            for name, tensors in step.drawn.items()
        }
        return [
            Step(part, {name: {key: cut[index] for key, cut in tensors.items()} for name, tensors in drawn.items()})
            for index, part in enumerate(parts)
        ]

    def labels(self, step: Step) -> Int64[Tensor, "K N"]:
        """Return the labels of a step."""
        return torch.where(step.positions < 0, PADDING, self.targets[step.positions.clamp(min=0)])

    def inputs(self, step: Step) -> dict[str, Float[Tensor, "K *shape N"]]:
        """Return the views of a step, normalised and with the batch innermost."""
        positions = step.positions
        rows = self.rows.index_select(0, positions.clamp(min=0).view(-1))
        pixels = self.pixels.index_select(0, rows).to(torch.float32).mul_(self.scale).add_(self.shift)
        views: dict[str, Tensor] = {}
        for name, view in self.views.items():
            seen = pixels
            if name in step.drawn:
                seen = view.apply(pixels.view(len(rows), *self.shape), step.drawn[name]).flatten(1)
            inputs = seen.view(*positions.shape, -1).transpose(1, 2).contiguous()
            views[name] = inputs.view(len(positions), *self.shape, positions.shape[1])
        return views

    def only(self, step: Step) -> Float[Tensor, "K *shape N"]:
        """Return the one view of a step, where there is one."""
        (inputs,) = self.inputs(step).values()
        return inputs
