"""A view of a batch: transforms one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedpu.augmentation.transform import Drawn, Transform
from fedpu.errors import ConfigError


@dataclass(frozen=True)
class View:
    """What a network is shown of a batch. A view without transforms is false, and shows the inputs as they are."""

    transforms: tuple[Transform, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.transforms)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs of a shape that one of the transforms can't change."""
        for transform in self.transforms:
            transform.check(shape)

    def draw(self, count: int, shape: tuple[int, ...], generator: torch.Generator) -> Drawn:
        """Draw everything that is random for ``count`` inputs of ``shape``."""
        return {
            f"{place}.{name}": value
            for place, transform in enumerate(self.transforms)
            for name, value in transform.draw(count, shape, generator).items()
        }

    def apply(self, inputs: Float[Tensor, "n *shape"], drawn: Drawn) -> Float[Tensor, "n *shape"]:
        """Return the view of normalised inputs, be they of one client or of several (:func:`join`)."""
        for place, transform in enumerate(self.transforms):
            start = f"{place}."
            mine = {name.removeprefix(start): value for name, value in drawn.items() if name.startswith(start)}
            changed = transform.apply(inputs, mine)
            if changed.shape != inputs.shape:
                before, after = ("×".join(map(str, shape)) for shape in (inputs.shape, changed.shape))
                raise ConfigError(
                    f"{type(transform).__name__} in [augmentation] returned a batch of shape {after} where it was "
                    f"given {before}: its apply must return as many inputs, of the same shape."
                )
            inputs = changed
        return inputs


def join(drawn: Sequence[Drawn], padded: bool = False) -> Drawn:
    """Return what several clients drew for one batch of them all.

    ``padded``: their parts of the batch are filled up to the longest one, and so is what they drew, with zeros.
    """
    columns = {name: [part[name] for part in drawn] for name in drawn[0]}
    if padded:
        return {name: pad_sequence(parts, batch_first=True).flatten(0, 1) for name, parts in columns.items()}
    return {name: torch.cat(parts) for name, parts in columns.items()}
