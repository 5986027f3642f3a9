"""Environments of the peers, their data, and running one of them in a process of its own."""

from __future__ import annotations

import gzip
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
IMAGES = 60_000
TIME_LIMIT = 3600

# One thread in every process, whatever library asks; no accelerator; nothing sent anywhere.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class PeerError(Exception):
    """A peer could not be set up or did not finish; the message says why."""


@dataclass(frozen=True)
class Peer:
    """How a peer is run: its module under ``peers``, the environment it needs, and its own options."""

    module: str
    requirements: str | None
    """names ``peers/<requirements>.txt``; None: the project's own environment"""
    options: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")

PEERS = {
    "plain": Peer("plain", "plain"),
    "plain-2": Peer("plain", "plain", ("--processes", "2")),
    "plain-2:bfloat16": Peer("plain", "plain", ("--processes", "2", "--autocast")),
    "flower": Peer("flower", "flower"),
    "pfl": Peer("pfl", "pfl"),
    "pfl-2": Peer("pfl", "pfl", launcher=TORCHRUN),
    "fedjax": Peer("fedjax", "fedjax"),
    "fedjax-pmap": Peer(
        "fedjax",
        "fedjax-pmap",
        ("--backend", "pmap"),
        environment={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    ),
}
OURS = "fedpu-"


def find(name: str) -> Peer:
    """Return the peer of that name; ``fedpu-NAME`` is our engine called NAME, ``fedpu-NAME:bfloat16`` in bfloat16."""
    if name.startswith(OURS):
        engine, _, precision = name.removeprefix(OURS).partition(":")
        return Peer("fedpu", None, ("--engine", engine, "--precision", precision or "float32"))
    if name not in PEERS:
        raise SystemExit(f"There is no peer '{name}'. Known: {', '.join(PEERS)} and fedpu-ENGINE.")
    return PEERS[name]


def own_python() -> Path:
    """Return the interpreter of the project's own environment."""
    made_by_make = ROOT / ".venv" / "bin" / "python"
    return made_by_make if made_by_make.exists() else Path(sys.executable)


def python_of(peer: Peer, environments: Path) -> Path:
    """Return the interpreter of the peer's environment, which is made when it is new or its requirements changed."""
    if peer.requirements is None:
        return own_python()
    requirements = FOLDER / "peers" / f"{peer.requirements}.txt"
    folder = environments / peer.requirements
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if not done.exists() or done.read_text() != requirements.read_text():
        print(f"Installing {requirements.name} into {folder} …", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)],
        ):
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise PeerError(f"{requirements.name} could not be installed:\n{tail(result.stderr)}")
        shutil.copyfile(requirements, done)
    return python


def run(peer: Peer, python: Path, arguments: list[str]) -> dict[str, Any]:
    """Run a peer and return what it reports, with the seconds that the whole process took."""
    command = [str(python), *peer.launcher, "-m", f"peers.{peer.module}", *arguments, *peer.options]
    launched = time.time()
    environment = os.environ | ENVIRONMENT | peer.environment
    environment |= {"PYTHONPATH": str(FOLDER), "BENCHMARK_LAUNCHED": str(launched)}
    process = subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=TIME_LIMIT)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise PeerError(f"It did not finish within {TIME_LIMIT} seconds.") from error
        raise
    lines = [line for line in output.splitlines() if line.startswith('{"seconds"')]
    if process.returncode or not lines:
        raise PeerError(f"It failed with code {process.returncode}:\n{tail(errors)}")
    result: dict[str, Any] = json.loads(lines[-1])
    if not result["finite"]:
        raise PeerError("Its global model is not finite.")
    return result | {"process_seconds": time.time() - launched}


def tail(text: str, lines: int = 15) -> str:
    """Return the last lines of an error output."""
    return "\n".join(text.strip().splitlines()[-lines:])


def write_data(path: Path) -> str:
    """Write 60,000 images and labels to ``path``; return whether they are MNIST or random."""
    source = Path(os.environ.get("FEDPU_DATA", "data")) / "mnist"
    images, labels = (_idx(source / f"train-{name}-ubyte") for name in ("images-idx3", "labels-idx1"))
    if images is not None and labels is not None:
        pixels, kind = images[16:].reshape(-1, 28, 28), "MNIST"
        labels = labels[8:]
    else:
        generator = np.random.default_rng(0)
        pixels, kind = generator.integers(0, 256, (IMAGES, 28, 28), dtype=np.uint8), "random images of MNIST's shape"
        labels = generator.integers(0, 10, IMAGES, dtype=np.uint8)
    np.savez(path, images=pixels, labels=labels)
    return kind


def _idx(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    packed = path.with_name(f"{path.name}.gz")
    if path.is_file():
        return np.frombuffer(path.read_bytes(), np.uint8)
    return np.frombuffer(gzip.decompress(packed.read_bytes()), np.uint8) if packed.is_file() else None


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    return {
        "cpu": _cpu(),
        "cores_of_machine": os.cpu_count(),
        "cores_used": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_at_start": os.getloadavg()[0],
    }


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
