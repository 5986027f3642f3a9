"""Draw ``docs/views.png``: real digits as they are, and as every transform of [augmentation] shows them.

``.venv/bin/python docs/draw_views.py``; the numbers are the defaults, and the same digits come out every time.
"""

from __future__ import annotations

from pathlib import Path

import torch

from fedpu.augmentation import TRANSFORMS, Augmentation
from fedpu.data import DataSettings, load
from fedpu.randomness import torch_generator
from fedpu.report.plot import save_figure

PICTURE = Path(__file__).parent / "views.png"
DIGITS = 4
STRONG = ["affine", "colour", "cutout"]


def main() -> None:
    """Draw one column of digits for each transform, and one for several in a row."""
    from matplotlib.figure import Figure

    data = load(DataSettings(name="mnist-5k"))
    first = torch.stack([(data.labels == digit).nonzero()[0, 0] for digit in range(2, 2 + DIGITS)])
    images = data.normalisation(data.inputs[first])
    columns = {"as they are": images}
    for names in [*([name] for name in TRANSFORMS), STRONG]:
        view = Augmentation(strong=names).view("strong")
        columns["\n+ ".join(names)] = view.apply(images, view.draw(DIGITS, data.shape, torch_generator(0, "picture")))
    figure = Figure(figsize=(len(columns), DIGITS + 0.6), layout="constrained")
    grid = figure.subplots(DIGITS, len(columns))
    low, high = float(images.min()), float(images.max())
    for column, (title, shown) in enumerate(columns.items()):
        grid[0, column].set_title(title, fontsize=9)
        for row in range(DIGITS):
            place = grid[row, column]
            place.imshow(shown[row, 0], cmap="gray", vmin=low, vmax=high)
            place.set_axis_off()
    save_figure(figure, PICTURE)


if __name__ == "__main__":
    main()
