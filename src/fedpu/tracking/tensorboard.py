"""TensorBoard: event files in the folder ``tensorboard`` of the run directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedpu.tracking.base import Tracker, flat

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(Tracker):
    """Scalars by round, and the configuration as text. ``tensorboard --logdir RUN`` shows them."""

    name: ClassVar[str] = "tensorboard"
    needs: ClassVar[str] = "tensorboard"

    def __init__(self) -> None:
        self._writer: SummaryWriter | None = None

    def start(self, folder: Path, config: Mapping[str, Any], done: int) -> None:
        """Open a new event file; what an earlier one says of rounds that are run again does not count any more."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1 if done else None)
        if not done:
            rows = "\n".join(f"| {key} | {value} |" for key, value in flat(config).items())
            self._writer.add_text("configuration", f"| key | value |\n| --- | --- |\n{rows}", 0)

    def log(self, number: int, values: Mapping[str, float]) -> None:
        """Write the numbers of a round."""
        assert self._writer is not None
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def end(self, finished: bool) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
