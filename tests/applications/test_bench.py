"""The measurements of ``fedpu bench`` are of the real thing."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpu.applications import bench
from fedpu.config import Config
from fedpu.report.bench import bench_table, save_bench


def test_a_round_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    config = Config.load(overrides=["model.name=mlp", "engine.workers=1"])
    few = bench.measure(config, 10, 200, repeats=2)
    assert len(few.seconds) == 2
    assert 0 < few.best <= few.median
    assert 50 < few.memory_mb < 4000
    one = bench.measure(config, 1, 1, repeats=1)
    result = bench.Bench([few], one.best, 0.001)
    assert result.to_dict()["sizes"][0]["examples_per_second"] == 200 / few.best
    assert bench_table(result).row_count == 1
    save_bench(result, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").stat().st_size > 1000


def test_memory_grows_by_what_is_taken_here_or_by_a_child() -> None:
    for _ in range(5):  # the system may take back pages of files at any moment
        before = bench.memory_of_all_processes()
        taken = np.ones(25_000_000)  # 200 MB
        here = bench.memory_of_all_processes()
        if abs(here - before - 200) <= 30:
            break
    assert here - before == pytest.approx(200, abs=30)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_take_memory, args=(theirs,))
    child.start()
    assert ours.recv() == "taken"
    assert bench.memory_of_all_processes() - here == pytest.approx(100, abs=40)
    ours.send("enough")
    child.join()
    assert len(taken) > 0
    assert bench.machine()["cores"] == os.cpu_count()


def _take_memory(pipe: Any) -> None:
    taken = np.ones(12_500_000)  # 100 MB
    pipe.send("taken")
    pipe.recv()
    assert len(taken) > 0
