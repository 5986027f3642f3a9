"""The files of a full data set: where they are kept, how they are checked, and fetching the missing ones.

A file is what its checksum says or it is not used: the SHA-256 is that of the decompressed content, so one
table serves every place the data can come from, however that place compressed them.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import sys
import tarfile
import tempfile
import textwrap
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError

from fedpu.errors import DataError


@dataclass(frozen=True)
class File:
    """One file of a data set: its name, decompressed, and the SHA-256 of that content."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Origin:
    """A place that files can come from.

    ``deliver(names, folder)`` puts the named files, each raw or as ``.gz``, into a scratch folder, and raises
    when it can't. What it delivers need not be right: it is checked afterwards.
    """

    label: str
    deliver: Callable[[tuple[str, ...], Path], None]


class Unavailable(Exception):
    """An origin that can't give what was asked, and why."""


@dataclass(frozen=True)
class FileSet:
    """The files of one data set, kept in ``<directory>/<name>``, and the origins to try for them in order.

    ``published`` says, for whoever must find the files by hand, in what form they are published.
    """

    name: str
    files: tuple[File, ...]
    origins: tuple[Origin, ...]
    published: str

    def folder(self, directory: Path) -> Path:
        """Return the folder that holds the files."""
        return directory / self.name

    def missing(self, directory: Path) -> tuple[str, ...]:
        """Return the names of the files that are not there."""
        return tuple(file.name for file in self.files if _present(self.folder(directory), file.name) is None)

    def read(self, directory: Path, name: str) -> bytes:
        """Return the checked, decompressed content of the file called ``name``."""
        expected = next(file for file in self.files if file.name == name)
        path = _present(self.folder(directory), name)
        if path is None:
            raise DataError(
                f"{self.folder(directory) / name} is missing. Run `fedpu data fetch {self.name}` to get it."
            )
        try:
            return _checked_content(path, expected)
        except Unavailable as error:
            raise DataError(f"{path} is damaged: {error}. Delete it and run `fedpu data fetch {self.name}`.") from error
        except OSError as error:
            raise DataError(f"{path} can't be read ({error.strerror or error}).") from error

    def fetch(self, directory: Path) -> Path:
        """Check the files that are there, get the missing ones from the first origin that has them."""
        folder = self.folder(directory)
        absent = self.missing(directory)
        for file in self.files:
            if file.name not in absent:
                self.read(directory, file.name)
        if absent:
            with _scratch(folder) as scratch:
                self._fetch(absent, folder, scratch)
        return folder

    def _fetch(self, names: tuple[str, ...], folder: Path, scratch: Path) -> None:
        failures = []
        for number, origin in enumerate(self.origins):
            room = scratch / str(number)
            room.mkdir()
            # A download may take minutes: whoever waits should know for what.
            print(f"Fetching {', '.join(names)} of '{self.name}' from {origin.label} …", file=sys.stderr, flush=True)
            try:
                self._fetch_from(origin, names, folder, room)
            except _FAILURES as error:
                if isinstance(error, OSError) and error.errno in _OUT_OF_SPACE:
                    raise
                failures.append(f"  {origin.label}: {_brief(error)}")
            else:
                return
        wanted = [file for file in self.files if file.name in names]
        lines = [
            f"The data set '{self.name}' could not be fetched. "
            f"Put these files into {folder} by hand ({self.published}):",
            *(f"  {file.name}  sha256 {file.sha256}" for file in wanted),
            "What was tried:",
            *failures,
        ]
        raise DataError("\n".join(lines))

    def _fetch_from(self, origin: Origin, names: tuple[str, ...], folder: Path, room: Path) -> None:
        origin.deliver(names, room)
        delivered = []
        for file in self.files:
            if file.name in names:
                path = _present(room, file.name)
                if path is None:
                    raise Unavailable(f"has no {file.name}")
                _checked_content(path, file)
                delivered.append(path)
        for path in delivered:
            os.replace(path, folder / path.name)


_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT)
_FAILURES = (Unavailable, OSError, EOFError, ValueError, zlib.error, tarfile.TarError, SubprocessError)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Give a scratch folder inside ``folder``, and say in a sentence when that is full or can't be written.

    It is inside, so that a move from one to the other is atomic: a fetch that is killed leaves no half file
    under a real name.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as name:
            yield Path(name)
    except OSError as error:
        if error.errno in _OUT_OF_SPACE:
            raise DataError(
                f"The disk is full: there is no room in {folder} for the data set. Free some space, or set "
                "data.directory or FEDPU_DATA to a folder on another disk."
            ) from error
        raise DataError(
            f"The folder {folder} can't be written ({error.strerror or error}). "
            "Set data.directory or FEDPU_DATA to a folder that can."
        ) from error


def _present(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _checked_content(path: Path, file: File) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise Unavailable(f"{file.name} can't be decompressed ({error})") from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise Unavailable(f"the sha256 of {file.name} is {found} and should be {file.sha256}")
    return content


def _brief(error: BaseException) -> str:
    if not isinstance(error, Unavailable):
        # What went wrong with a connection is at the root of three libraries' errors about one another.
        while error.__context__ is not None:
            error = error.__context__
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return textwrap.shorten(reason or type(error).__name__, width=200, placeholder=" …")
