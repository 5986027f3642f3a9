"""The views of a batch that a method asks for, in an engine's own randomness."""

from __future__ import annotations

from jaxtyping import Num
from torch import Tensor

from fedpu.augmentation import View
from fedpu.engine.base import Job
from fedpu.randomness import torch_generator
from fedpu.round import Tensors


def client_views(
    job: Job, inputs: Num[Tensor, "n *shape"], round_: int, client: int, step: int
) -> dict[str, Num[Tensor, "n *shape"]]:
    """Return every view of one client's batch."""
    views: dict[str, Tensor] = {}
    for name in job.method.views:
        view = job.augmentation.view(name)
        if not view:
            views[name] = inputs
            continue
        drawn = draw_view(job, view, name, len(inputs), round_, client, step)
        views[name] = view.apply(inputs, {key: value.to(inputs.device) for key, value in drawn.items()})
    return views


def draw_view(job: Job, view: View, name: str, count: int, round_: int, client: int, step: int) -> Tensors:
    """Draw what a view does to ``count`` examples: a matter of (seed, view, round, client, step) alone."""
    shape = tuple(job.federation.inputs.shape[1:])
    return view.draw(count, shape, torch_generator(job.seed, f"{name} view", round_, client, step))
