"""fedpu watch and fedpu report, on runs that go on, were stopped, and are finished."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from fedpu.applications import comparison, experiment
from fedpu.cli import main
from fedpu.config import Config
from fedpu.errors import FedpuError
from fedpu.record import progress_of

DEADLINE = 240


def fedpu(*arguments: str, cwd: Path, code: int = 0) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["fedpu", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert (ended.value.code or 0) == code, err.getvalue()
    return out.getvalue(), err.getvalue()


@pytest.fixture
def running(tiny_config: Config, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run in another process, that would go on for hours, with some rounds behind it."""
    (tmp_path / "my.toml").write_text(tiny_config.with_("aggregation.rounds=1000000").to_toml())
    command = [sys.executable, "-m", "fedpu", "run", "my.toml", "--out", "r", "--quiet"]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"})
    end = time.monotonic() + DEADLINE
    while not ((tmp_path / "r/rounds.jsonl").exists() and (tmp_path / "r/rounds.jsonl").read_text().count("\n") > 1):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    yield process
    process.kill()
    process.wait()


def test_a_run_is_watched_from_another_shell_and_not_disturbed(
    running: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    (first,) = json.loads(fedpu("watch", "r", "--once", "--json", cwd=tmp_path)[0])
    assert (first["state"], first["rounds"], first["method"]) == ("running", 1000000, "fedpu")
    assert first["round"] >= 2
    assert 0 <= first["accuracy"] <= 1
    end = time.monotonic() + DEADLINE
    while json.loads(fedpu("watch", "r", "--once", "--json", cwd=tmp_path)[0])[0]["round"] <= first["round"]:
        assert time.monotonic() < end
    fedpu("report", "r", cwd=tmp_path)
    assert "Not finished: fedpu" in (tmp_path / "r/report.html").read_text()
    running.send_signal(signal.SIGINT)
    assert running.wait(DEADLINE) == 130
    out, err = fedpu("watch", "r", "--patience", "0", cwd=tmp_path)
    assert ", stopped" in out
    assert "go on with 'fedpu run --resume r'" in " ".join(err.split())


def test_a_folder_of_finished_runs_is_told_in_lines_and_shown_on_one_page(tiny_config: Config, tmp_path: Path) -> None:
    comparison.compare(tiny_config, ["fedpu", "supervised"], [0], out=tmp_path / "c")
    out, _ = fedpu("watch", "c", "--patience", "0", cwd=tmp_path)
    assert [line.split(":")[0] for line in out.splitlines()] == ["fedpu-seed0", "supervised-seed0"]
    assert out.count("round 3 of 3, accuracy") == out.count("finished") == 2
    told = json.loads(fedpu("report", "c", "--json", "--out", "page.html", cwd=tmp_path)[0])
    assert list(told["methods"]) == ["fedpu", "supervised"]
    assert (tmp_path / "page.html").exists()
    assert "ends in .html" in " ".join(fedpu("report", "c", "--out", "page.pdf", cwd=tmp_path, code=1)[1].split())


def test_the_time_that_is_left_follows_from_the_last_rounds(tiny_config: Config, tmp_path: Path) -> None:
    experiment.run(tiny_config, out=tmp_path / "r")
    (tmp_path / "r/result.json").unlink()
    line = (tmp_path / "r/rounds.jsonl").read_text().splitlines()[0]
    changed = json.dumps(json.loads(line) | {"seconds": 90.0})
    (tmp_path / "r/rounds.jsonl").write_text(f'{changed}\n{{"round": 2, "acc')
    (stopped,) = progress_of(tmp_path / "r")
    assert (stopped.state, stopped.done, stopped.left) == ("stopped", 1, None)
    with (tmp_path / "r/.lock").open("w") as file:
        fcntl = pytest.importorskip("fcntl")
        fcntl.flock(file, fcntl.LOCK_EX)
        (going,) = progress_of(tmp_path / "r")
    assert (going.state, going.left) == ("running", "3 min 00 s")


def test_a_folder_without_runs_can_not_be_watched(tmp_path: Path) -> None:
    with pytest.raises(FedpuError, match="There is no run in"):
        progress_of(tmp_path)
