"""What views cost: each transform beside the work that the local engine has with the same images anyway.

``.venv/bin/python benchmarks/views.py`` prints processor seconds on one thread for 60,000 made-up MNIST images in
batches of 128: to fetch, normalise and transpose them, to apply each transform to them, and to move them in four other
ways than the one that was kept. Then microseconds for a client's generator and what it draws for a batch of 60.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import pad

from fedpu.augmentation import TRANSFORMS, Augmentation, Transform
from fedpu.engine.pool import keep_freed_memory
from fedpu.randomness import torch_generator

IMAGES, BATCH, SHIFT = 60_000, 128, 4
SHAPE = (1, 28, 28)

Images = Float[Tensor, "n c h w"]
Distance = Int64[Tensor, " n"]


def best(run: Callable[[], object], repeats: int, tries: int = 15) -> float:
    """Return the processor seconds of ``repeats`` runs, the fastest of some tries."""
    fastest = math.inf
    for _ in range(tries):
        started = time.process_time()
        for _ in range(repeats):
            run()
        fastest = min(fastest, time.process_time() - started)
    return fastest


def gather_pixels(images: Images, down: Distance, right: Distance) -> Images:
    """Move images by a gather of single pixels by their place."""
    count, channels, height, width = images.shape
    rows = torch.arange(SHIFT, SHIFT + height) - down[:, None]
    columns = torch.arange(SHIFT, SHIFT + width) - right[:, None]
    padded = pad(images, (SHIFT,) * 4)
    places = rows[:, :, None] * padded.shape[-1] + columns[:, None, :]
    return padded.flatten(2).gather(2, places.view(count, 1, -1).expand(-1, channels, -1)).view(images.shape)


def rows_then_columns(images: Images, down: Distance, right: Distance) -> Images:
    """Move images by fetching whole rows first, then gathering their columns."""
    count, channels, height, width = images.shape
    padded = pad(images, (SHIFT,) * 4)
    tall = padded.shape[2]
    rows = torch.arange(SHIFT, SHIFT + height) - down[:, None, None] + (torch.arange(channels) * tall)[:, None]
    rows = rows + (torch.arange(count) * channels * tall)[:, None, None]
    fetched = padded.view(-1, padded.shape[-1]).index_select(0, rows.view(-1)).view(count, -1, padded.shape[-1])
    columns = torch.arange(SHIFT, SHIFT + width) - right[:, None]
    return fetched.gather(2, columns[:, None, :].expand(-1, fetched.shape[1], -1)).view(images.shape)


def unfolded(images: Images, down: Distance, right: Distance) -> Images:
    """Move images by indexing a view that has every window of every image."""
    windows = pad(images, (SHIFT,) * 4).unfold(2, images.shape[2], 1).unfold(3, images.shape[3], 1)
    return windows.permute(0, 2, 3, 1, 4, 5)[torch.arange(len(images)), SHIFT - down, SHIFT - right]


def grouped_by_distance(images: Images, down: Distance, right: Distance) -> Images:
    """Move all images of one distance together."""
    padded, moved = pad(images, (SHIFT,) * 4), torch.empty_like(images)
    for far in set(zip(down.tolist(), right.tolist(), strict=True)):
        mine = ((down == far[0]) & (right == far[1])).nonzero()[:, 0]
        top, left = SHIFT - far[0], SHIFT - far[1]
        moved[mine] = padded[mine][:, :, top : top + images.shape[2], left : left + images.shape[3]]
    return moved


def applying(transform: Transform, images: Images) -> Callable[[], object]:
    """Return what is measured of a transform."""
    drawn = transform.draw(len(images), SHAPE, torch_generator(0, "benchmark"))
    return lambda: transform.apply(images, drawn)


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as the engine's workers do
    settings = Augmentation(shift=SHIFT, border="mean")
    stored = torch.randint(256, (IMAGES, math.prod(SHAPE)), dtype=torch.uint8)
    scale, offset = torch.rand(2, stored.shape[1])
    order = iter(torch.randperm(IMAGES).repeat(40).split(BATCH))

    def fetch() -> object:
        pixels = stored.index_select(0, next(order)).to(torch.float32).mul_(scale).add_(offset)
        return pixels.T.contiguous()

    batches = math.ceil(IMAGES / BATCH)
    images = torch.randn(BATCH, *SHAPE)
    print(f"{'fetch, normalise, transpose':32s} {best(fetch, batches):6.3f} s")
    for name, kind in TRANSFORMS.items():
        print(f"{name:32s} {best(applying(kind(settings), images), batches):6.3f} s")
    edge = TRANSFORMS["shift"](Augmentation(shift=SHIFT, border="edge"))
    print(f"{'shift, border edge':32s} {best(applying(edge, images), batches):6.3f} s")

    shift = TRANSFORMS["shift"](settings)
    drawn = shift.draw(BATCH, SHAPE, torch_generator(0, "benchmark"))
    down, right = ((drawn["numbers"] * (2 * SHIFT + 1)).floor().long() - SHIFT).T
    print("\nother ways to move images")
    for way in (gather_pixels, rows_then_columns, unfolded, grouped_by_distance):
        assert torch.equal(way(images, down, right), shift.apply(images, drawn))
        print(f"{way.__name__:32s} {best(partial(way, images, down, right), batches):6.3f} s")

    print("\nmicroseconds for a client's batch of 60")
    print(f"{'generator':32s} {1000 * best(lambda: torch_generator(0, 'weak', 3, 5, 7), 1000):6.1f}")
    generator = torch_generator(0, "benchmark")
    for name, kind in TRANSFORMS.items():
        transform = kind(settings)
        draw = best(partial(transform.draw, 60, SHAPE, generator), 1000, 3)
        print(f"{'draw ' + name:32s} {1000 * draw:6.1f}")


if __name__ == "__main__":
    main()
