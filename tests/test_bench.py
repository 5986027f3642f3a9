"""The measurements of ``fedpu bench`` are of the real thing."""

from __future__ import annotations

import os
from pathlib import Path

from fedpu import bench
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


def test_memory_of_all_processes_is_that_of_this_one_at_least() -> None:
    assert bench.memory_of_all_processes() > 50
    assert bench.machine()["cores"] == os.cpu_count()
