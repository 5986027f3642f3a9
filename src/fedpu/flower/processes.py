"""Flower's own commands as child processes: started with what they need, and ended with this one."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import tomli_w

from fedpu.errors import FedpuError

LOOPBACK = "127.0.0.1"
CONNECTION = "fedpu"
"""name of the connection in Flower's configuration file"""
CONFIG = "config.toml"
TAIL = 15
PARENT_POLL = 0.2
"""seconds between two looks whether the parent is still there"""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's commands: files in ``home``, nothing told to anybody, one thread each."""
    here = str(Path(sys.executable).parent)
    return os.environ | {
        "PATH": os.pathsep.join([here, os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": os.environ.get("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.5"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def free_port() -> int:
    """Return a port of the loopback that nobody listens on now."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])


def write_connection(home: Path, address: str, root_certificates: Path | None) -> None:
    """Tell ``flwr`` where the SuperLink is, and whose certificate to trust (None: no TLS)."""
    home.mkdir(parents=True, exist_ok=True)
    how = {"insecure": True} if root_certificates is None else {"root-certificates": str(root_certificates)}
    table = {"superlink": {"default": CONNECTION, CONNECTION: {"address": address} | how}}
    (home / CONFIG).write_text(tomli_w.dumps(table))


def has_connection(home: Path) -> bool:
    """Has ``flwr`` been told where the SuperLink is?"""
    return (home / CONFIG).exists()


class Child:
    """A running command, its output in a file."""

    def __init__(
        self, command: Sequence[str], home: Path, log: Path, cwd: Path | None = None, name: str | None = None
    ) -> None:
        self.name = name or Path(command[0]).name
        self.log = log
        with open(log, "ab", opener=_private) as file:
            self.process = subprocess.Popen(
                [found(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment(home),
                cwd=cwd,
                start_new_session=True,
                preexec_fn=dies_with_parent(),
            )

    def output(self) -> str:
        """Return what it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    def running(self) -> bool:
        """Is it still there?"""
        return self.process.poll() is None

    def wait_for(self, ready: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until ``ready`` says so; tell what it printed when it ends first or takes too long."""
        end = time.monotonic() + seconds
        while not ready():
            if not self.running() or time.monotonic() > end:
                state = "has not" if self.running() else f"ended with code {self.process.returncode} and has not"
                raise FedpuError(f"{self.name} {state} {what}. It says:\n{self.tail()}")
            time.sleep(0.1)

    def tail(self) -> str:
        """Return the end of what it printed."""
        return "\n".join(self.output().splitlines()[-TAIL:])

    def stop(self, seconds: float = 10) -> None:
        """End it, by force if it takes too long, and what is left of its children with it."""
        if self.running():
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def children() -> Iterator[list[Child]]:
    """Stop everything that was put into the list, whatever happens."""
    started: list[Child] = []
    try:
        yield started
    finally:
        for child in reversed(started):
            child.process.terminate()
        for child in started:
            child.stop()


def found(command: str) -> str:
    """Return where a command is: beside this Python, or else on the path."""
    beside = Path(sys.executable).parent / command
    return str(beside) if beside.exists() else command


def flwr(arguments: Sequence[str], home: Path, seconds: float = 300) -> str:
    """Run ``flwr`` to its end; return what it printed."""
    try:
        done = subprocess.run(
            [found("flwr"), *arguments],
            env=environment(home),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FedpuError(f"'flwr {arguments[0]}' took longer than {seconds:.0f} seconds.") from error
    if done.returncode:
        printed = (done.stderr + done.stdout).strip()
        raise FedpuError(f"'flwr {' '.join(arguments[:2])}' failed: {printed}")
    return done.stdout


def listening(port: int) -> bool:
    """Does somebody listen on that port of the loopback?"""
    with socket.socket() as trial:
        trial.settimeout(1)
        return trial.connect_ex((LOOPBACK, port)) == 0


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner can read."""
    return os.open(path, flags, 0o600)


def dies_with_parent(signal_: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """Return what a new process does first, so that it gets this signal when the thread that started it ends.

    Nothing where the system has no such thing (anything but Linux).
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        set_parent_death_signal = 1
        prctl(set_parent_death_signal, signal_)
        if os.getppid() != parent:  # it has ended already
            os.kill(os.getpid(), signal_)

    return ask


def end_with_parent(parent: int) -> None:
    """End this process, at once, when the one that started it is there no more, whatever it is doing then.

    A signal would not do: its handler waits for the call that is under way, which may be one to a server that is gone.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
