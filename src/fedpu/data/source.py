"""What a data source is: a name, a line to list it by, and how to load it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedpu.data.dataset import Dataset
from fedpu.data.files import FileSet


@dataclass(frozen=True)
class Source:
    """A data set that is known by name.

    ``read`` takes the directory of the full data sets. ``files`` are those that it needs there; a source
    without files comes with a Python package, or is read from the file of one.
    """

    name: str
    description: str
    size: str
    classes: int
    read: Callable[[Path], Dataset]
    files: FileSet | None = None

    def load(self, directory: Path) -> Dataset:
        """Return the data, fetching their files first when they are not in ``directory``."""
        if self.missing(directory):
            self.fetch(directory)
        return self.read(directory)

    def missing(self, directory: Path) -> tuple[str, ...]:
        """Return the names of the files that must be fetched before the data can be loaded."""
        return () if self.files is None else self.files.missing(directory)

    def fetch(self, directory: Path) -> Path:
        """Get the files that are missing, check those that are there, and return their folder."""
        return directory if self.files is None else self.files.fetch(directory)
