"""A folder for keys that does not outlive its process, however that ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DONE = b"done"
JANITOR = """
import shutil, sys, time
if sys.stdin.buffer.read() != b"done":  # it ends with whoever holds the other end
    end = time.monotonic() + 15
    while time.monotonic() < end:  # processes that are ending, too, may still write
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        time.sleep(0.2)
"""


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a folder that only this user can enter, and remove it at the end.

    Somebody who is killed can't clean up. So a small process waits for the end of this one, and does it then.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    janitor = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", JANITOR, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder.parent,
        start_new_session=True,  # Ctrl-C is not for it
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        janitor.communicate(DONE)
