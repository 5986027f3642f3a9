"""Writing files so that a run killed at any moment leaves whole ones, and a full disk gives a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from fedpu.errors import DAMAGED_ARCHIVE, FedpuError


@contextmanager
def telling_disk_errors(path: Path) -> Iterator[None]:
    """Turn a failed write into a sentence for the user."""
    try:
        yield
    except OSError as error:
        # safetensors reports the system's error only in its text.
        full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error)
        if full:
            message = f"The disk is full: '{path}' could not be written. Make room and resume, or choose another --out."
        else:
            message = f"'{path}' could not be written ({error.strerror or error})."
        raise FedpuError(message) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a file that is missing or damaged into a sentence for the user."""
    try:
        yield
    except FileNotFoundError as error:
        raise FedpuError(f"There is no '{path}': the run directory is not complete.") from error
    except (SafetensorError, AttributeError, IndexError, ArithmeticError, *DAMAGED_ARCHIVE) as error:
        raise FedpuError(f"'{path}' is damaged, or not written by fedpu ({type(error).__name__}: {error}).") from error


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write to a temporary file beside ``path``, then put it in place in one step.

    ``mode`` says who may read and write it, as far as the user's own mask allows.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with telling_disk_errors(path):
        try:
            with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if temporary.read_bytes() != content:  # what is there is not given up for something that is not whole
                raise OSError(errno.EIO, "what was written can't be read back")
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
