"""Ctrl-C: the first stops what is done, the next are told that it is being stopped, and none ends in a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 3
"""Ctrl-C pressed so many times leaves at once, without putting anything away"""
STOPPING = b"Stopping; one moment. Ctrl-C once more leaves at once, and processes that were started may stay behind.\n"
AT_ONCE = b"Left at once. Finished rounds are kept.\n"
INTERRUPTED = 130


@contextmanager
def handled_interrupts() -> Iterator[None]:
    """Take care of Ctrl-C inside; once it was pressed, until the process ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    counted = _Counted()
    before = signal.signal(signal.SIGINT, counted)
    try:
        yield
    finally:
        if not counted.count:
            signal.signal(signal.SIGINT, before)


@contextmanager
def leaving_on_terminate() -> Iterator[None]:
    """Leave by the way out when the process is asked to end, so that what was started inside is stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Counted:
    def __init__(self) -> None:
        self.count = 0
        self._process = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a worker that has not begun to leave Ctrl-C to its parent
            return
        self.count += 1
        if self.count == 1:
            raise KeyboardInterrupt
        if self.count < PATIENCE:
            os.write(2, STOPPING)
            return
        os.write(2, AT_ONCE)
        os._exit(INTERRUPTED)
