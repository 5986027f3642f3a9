"""The benchmarks still run: what they call exists, and what they measure adds up."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedpu.native import kernels

FOLDER = Path(__file__).parents[2] / "benchmarks"


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_part_of_a_step_is_measured() -> None:
    step_profile = loaded("step_profile")
    step_profile.REPEATS = 2
    parts = step_profile.profile()
    # Convolution, pooling and ReLU are one layer, twice, where there is a compiler.
    layers = 10 if kernels().library is None else 6
    assert len(parts) == 1 + layers + 1 + layers + 1, "gathering, the layers forward, the risk, backward, the step"
    assert all(milliseconds > 0 for milliseconds in parts.values())
    assert step_profile.plain_step() > 0


@pytest.mark.parametrize("script", ["compare", "deployment", "priors", "priors_small", "secure_sum", "step_profile"])
def test_a_script_says_what_it_does(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{script}.py"), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout
