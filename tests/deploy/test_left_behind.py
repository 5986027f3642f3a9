"""'fedpu deploy local' that is killed in the middle of a run leaves nothing behind: no process, no folder with keys."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from deploy.page import FEDPU

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended"),
]
SECONDS = 600.0


def processes_with(text: str) -> list[str]:
    """Return the command lines of processes whose environment or command line names something."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if text.encode() in (folder / "environ").read_bytes() + command:
                found.append(command.replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


def wait_for(ready: Callable[[], bool], what: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not ready():
        assert time.monotonic() < end, what()
        time.sleep(0.2)


def test_a_trial_that_is_killed_leaves_no_process_and_no_key(tmp_path: Path) -> None:
    temporary, out = tmp_path / "temporary", tmp_path / "run"
    temporary.mkdir()
    settings = ["data.name=digits", "labelling.positive=5", "model.name=mlp", "aggregation.rounds=100000"]
    command = [*FEDPU, "deploy", "local", "--quiet", "--nodes", "2", "--out", str(out)]
    command += [part for setting in settings for part in ("--set", setting)]
    with (tmp_path / "said").open("wb") as said:
        main = subprocess.Popen(
            command, env=os.environ | {"TMPDIR": str(temporary)}, stdout=said, stderr=said, start_new_session=True
        )
    try:
        rounds = out / "rounds.jsonl"
        wait_for(
            lambda: main.poll() is not None or (rounds.exists() and rounds.read_bytes().count(b"\n") >= 1),
            lambda: (tmp_path / "said").read_text(),
        )
        assert main.poll() is None, (tmp_path / "said").read_text()
        assert list(temporary.glob("*/deployment/keys/*"))
        assert len(processes_with(str(temporary))) >= 5, "main process, SuperLink, executor, ServerApp and nodes"
    finally:
        main.send_signal(signal.SIGKILL)
        main.wait()
    wait_for(lambda: not processes_with(str(temporary)), lambda: processes_with(str(temporary)))
    assert not list(temporary.glob("fedpu*")), "PyTorch has left a cache of its own"
    assert {path.name for path in (out / "logs").iterdir()} == {"superlink.log", "node-0.log", "node-1.log"}
    for path in (*(out / "logs").iterdir(), out / "server.log"):
        assert path.stat().st_mode & 0o077 == 0, path
