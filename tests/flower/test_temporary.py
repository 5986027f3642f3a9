"""A folder for keys is removed when its process ends, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedpu.flower import temporary

WAITING = """
import runpy, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
temporary_folder = runpy.run_path(sys.argv[1])["temporary_folder"]  # without the rest of fedpu, which takes seconds
with temporary_folder("fedpu-test-") as folder:
    (folder / "deep").mkdir()
    (folder / "deep" / "key").write_text("secret")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_is_removed_however_its_process_ends(how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, temporary.__file__], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().decode().strip())
    assert (folder / "deep" / "key").exists()
    assert folder.stat().st_mode & 0o077 == 0
    process.send_signal(how)
    process.wait()
    process.stdout.close()
    end = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < end, "the folder is still there"
        time.sleep(0.05)


def test_it_is_gone_at_the_end() -> None:
    with temporary.temporary_folder("fedpu-test-") as folder:
        assert folder.is_dir()
    assert not folder.exists()
