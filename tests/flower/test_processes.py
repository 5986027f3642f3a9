"""Processes of a deployment end with the one that started them, even if that one is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
DEAF = (
    "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN);"
)
WATCHING = f"""
import os, sys
from fedpu.flower.processes import end_with_parent
{DEAF}
end_with_parent(os.getppid())
print("up", flush=True)
time.sleep(600)
"""
STARTING = """
import signal, subprocess, sys, time
from fedpu.flower.processes import dies_with_parent
start = dies_with_parent(signal.SIGKILL) if sys.argv[2] == "told" else None
subprocess.Popen([sys.executable, "-c", sys.argv[1]], preexec_fn=start, start_new_session=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("program", "how"),
    [
        pytest.param(WATCHING, "watching", id="it watches its parent"),
        pytest.param(f"{DEAF} print('up', flush=True); time.sleep(600)", "told", id="the system tells it", marks=LINUX),
    ],
)
def test_a_process_in_the_middle_of_a_call_ends_when_its_parent_is_killed(program: str, how: str) -> None:
    read, write = os.pipe()
    parent = subprocess.Popen([sys.executable, "-c", STARTING, program, how], stdout=write)
    os.close(write)
    with os.fdopen(read, "rb", buffering=0) as output:
        assert output.readline() == b"up\n"
        assert not select.select([output], [], [], 0.5)[0], "both are still there"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        assert select.select([output], [], [], 60)[0], "nobody holds the other end any more"
        assert output.read(1) == b""
