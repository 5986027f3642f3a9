"""The contract of a reader: one form in which data come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from fedpu.data.raw import Raw
from fedpu.data.settings import DataSettings
from fedpu.errors import DataError


class Reader(ABC):
    """Reads one form of data, a kind of file or of objects in Python."""

    what: ClassVar[str]
    """what it reads, in a few words"""

    @abstractmethod
    def takes(self, given: Any) -> bool:
        """Is this its form? Nothing is read for it."""

    @abstractmethod
    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Return what is there, with labels and clients where they are part of it."""

    def inputs(self, given: Any, settings: DataSettings) -> Raw:
        """Return what is there to predict on; labels are not needed, and not looked at."""
        return self.read(given, settings)


class FileReader(Reader):
    """Reads files whose names end in one of ``suffixes``."""

    suffixes: ClassVar[tuple[str, ...]]

    def takes(self, given: Any) -> bool:
        """Has the file's name one of the endings?"""
        return isinstance(given, Path) and given.suffix.lower() in self.suffixes and not given.is_dir()

    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Read the file, and that of the test rows where the settings name one."""
        raw = self.read_file(existing(given))
        if settings.test is None:
            return raw
        test = self.read_file(existing(Path(settings.test).expanduser()))
        return Raw(raw.name, raw.x, raw.y, raw.client, raw.classes, test, raw.tokens)

    @abstractmethod
    def read_file(self, path: Path) -> Raw:
        """Read one file."""

    def inputs(self, given: Any, settings: DataSettings) -> Raw:
        """Read the file alone."""
        return self.read_file(existing(given))


def existing(path: Path) -> Path:
    """Return the path of a file that is there."""
    if not path.is_file():
        raise DataError(f"There is no file {path}. Give the path of a {path.suffix or 'data'} file.")
    return path
