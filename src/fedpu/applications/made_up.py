"""Random images for measurements of time: what is in a picture does not change how long it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedpu.data import Dataset
from fedpu.errors import ConfigError

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


@dataclass(frozen=True)
class MadeUp:
    """How many images of which shape, channels first."""

    shape: tuple[int, ...] = MNIST
    examples: int = 60_000
    test: int = 10

    def dataset(self) -> Dataset:
        """Return the images, with ten classes in turn."""
        rng = np.random.default_rng(0)
        count = max(self.examples, 10)
        x = rng.integers(0, 256, (count, *self.shape), dtype=np.uint8)
        y = np.arange(count) % 10
        tests = max(self.test, 10)
        x_test = x[np.arange(tests) % count]
        data = Dataset.from_arrays(x, y, x_test=x_test, y_test=np.arange(tests) % 10, name="made up")
        if self.examples >= 10:
            return data
        return replace(data, inputs=data.inputs[: self.examples], labels=data.labels[: self.examples])


IN_THE_PLACE_OF = {
    "mnist": MadeUp(MNIST, 60_000, 10_000),
    "fashion-mnist": MadeUp(MNIST, 60_000, 10_000),
    "cifar10": MadeUp(CIFAR, 50_000, 10_000),
}
"""what stands for a data set that would have to be fetched first"""


def read_shape(text: str) -> tuple[int, ...]:
    """Return a shape that was written as "mnist", "cifar10" or "3x64x64"."""
    if text in IN_THE_PLACE_OF:
        return IN_THE_PLACE_OF[text].shape
    parts = text.lower().split("x")
    if len(parts) == 3 and all(part.isdigit() and int(part) > 0 for part in parts) and parts[0] in ("1", "3"):
        return tuple(map(int, parts))
    raise ConfigError(
        f"--shape = '{text}' can't be used: give {', '.join(IN_THE_PLACE_OF)}, or channels (1 or 3), height and width "
        "such as 3x64x64."
    )
