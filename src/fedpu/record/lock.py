"""One writer at a time: a lock that the system gives back when its holder ends, however that ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedpu.errors import FedpuError
from fedpu.record.files import telling_disk_errors

PATIENCE = 1.0
"""seconds that the workers of a process that was killed may take to end, too: they share its lock"""


class InUse(FedpuError):
    """Somebody else is at work on it."""


@contextmanager
def locked(path: Path, refusal: str, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock of a file, which is made if need be; refuse, in these words, if somebody else holds it.

    The file stays, and means nothing by itself. Where the system has no such locks (Windows), nothing is held.
    """
    with telling_disk_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        held = _lock(descriptor, refusal, patience)
        try:
            yield
        finally:
            if held:
                _unlock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, refusal: str, patience: float) -> bool:
    """Take the lock; return False where there are none."""
    if sys.platform == "win32":
        return False
    import fcntl

    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() > end:
                holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
                raise InUse(f"{refusal} (Process {holder or 'unknown'}.)") from error
            time.sleep(0.05)
        except OSError:  # a file system without locks
            return False
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return True


def _unlock(descriptor: int) -> None:
    """Give the lock back for all processes that share it: workers may outlive the run by a moment."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)


def holder(path: Path) -> str | None:
    """Return who holds the lock of a file, or nothing where nobody does; the lock is not taken from anybody.

    It is held for an instant to find out, which whoever wants it waits out.
    """
    if sys.platform == "win32" or not path.exists():
        return None
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read(20).decode("ascii", "replace").strip() or "unknown"
        except OSError:  # a file system without locks
            return "unknown"
        fcntl.flock(file, fcntl.LOCK_UN)
    return None
