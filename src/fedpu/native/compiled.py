"""Compile ``thin.cpp``, ``norm.cpp`` and ``views.cpp`` with the machine's C++ compiler, once, and load it.

The library is kept in the user's cache, under a name that says what it was made from and for: the source, the compiler
and the processor. Before it is put there, its numbers are compared with PyTorch's. Where there is no compiler, or
anything else goes wrong, PyTorch's operations do the same, more slowly.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pooch

from fedpu.native import norm, thin, views

SOURCES = [Path(__file__).with_name(name) for name in ("thin.cpp", "norm.cpp", "views.cpp")]
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fno-exceptions", "-fno-rtti", "-shared", "-fPIC")
COMPILERS = ("c++", "g++", "clang++")
SWITCH, OFF = "FEDPU_KERNELS", "torch"
SECONDS = 120
"""after which a compiler is taken to hang"""


@dataclass(frozen=True)
class Kernels:
    """The compiled functions, or the reason why there are none."""

    library: ctypes.CDLL | None
    described: str
    """for the record: the compiler, or why PyTorch's operations are used"""


class _Unavailable(Exception):
    """There are no compiled kernels, for the reason that it says."""


@cache
def kernels() -> Kernels:
    """Return the compiled kernels of this process: made now where this machine has none yet."""
    try:
        return _made()
    except (_Unavailable, OSError, subprocess.SubprocessError) as problem:
        return Kernels(None, f"PyTorch's: {problem}")


def kernels_are() -> str | None:
    """Say in a few words which kernels are used; nothing, where none has been needed so far."""
    return kernels().described if kernels.cache_info().currsize else None


def _made() -> Kernels:
    if os.environ.get(SWITCH, "") == OFF:
        raise _Unavailable(f"{SWITCH}={OFF} was set")
    compiler = next((found for name in COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise _Unavailable("there is no C++ compiler on this machine")
    version = _output([compiler, "--version"]).splitlines()[0]
    # What "-march=native" stands for differs between machines that may share a home directory.
    target = _output([compiler, "-march=native", "-E", "-v", "-x", "c++", os.devnull], errors=True)
    parts = (*(source.read_bytes() for source in SOURCES), repr((FLAGS, version, target, platform.machine())).encode())
    name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]
    path = _folder() / f"kernels-{name}.so"
    if not path.exists():
        _compile(compiler, path)
    return Kernels(ctypes.CDLL(str(path)), f"compiled by {version}")


def _output(command: list[str], errors: bool = False) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=True, stdin=subprocess.DEVNULL
    )
    # Temporary names differ from call to call; the line with the compiler's own arguments is what tells.
    return "\n".join(line for line in done.stderr.splitlines() if "-march" in line) if errors else done.stdout


def _folder() -> Path:
    """Return a folder that nobody else can write to: what lies there is run."""
    if not hasattr(os, "getuid"):
        raise _Unavailable("they are made for Linux and macOS")
    folder = Path(pooch.os_cache("fedpu")) / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _Unavailable(f"others can write to {folder}")
    return folder


def _compile(compiler: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        command = [compiler, *FLAGS, "-o", str(made), *map(str, SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise _Unavailable(f"{compiler} could not compile them")
        library = ctypes.CDLL(str(made))
        if not all(part.agrees_with_pytorch(library) for part in (thin, norm, views)):
            raise _Unavailable(f"the results of what {compiler} made of them differ from PyTorch's")
        os.replace(made, path)  # several processes may do this at once: each puts the same in place
