"""Small real data, shared by all tests."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import shapes

shapes.check("fedpu")  # before anything of it is imported

from fedpu.config import Config  # noqa: E402
from fedpu.data import Dataset, DataSettings, load  # noqa: E402

HERE = Path(__file__).parent

# Machines are noisy and tests must not be: no deadlines, and the same examples in every run.
settings.register_profile("fedpu", deadline=None, derandomize=True)
settings.load_profile("fedpu")


LONGEST = (
    "deploy/test_deployment.py",
    "engine/flower/test_simulation.py",
    "engine/test_contract.py",
    "deploy/test_outsider.py",
    "applications/reproduction/test_reproduction.py",
    "examples/test_mine.py",
    "engine/test_rounds.py",
    "deploy/test_wire.py",
    "priors/test_training.py",
    "deploy/test_left_behind.py",
    "cli/test_cli.py",
    "aggregation/test_states.py",
    "priors/test_shrinkage.py",
    "record/test_run_directory.py",
)
"""files that take longest, in turn those that wait for Flower's processes and those that compute"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, so that no process is left alone with one of them at the end."""
    places = {HERE / name: place for place, name in enumerate(LONGEST)}
    assert all(path.exists() for path in places), "a file in the list of the longest has another name now"
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Take what is imported out of the collecting of garbage, which looked at a million objects again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load(DataSettings(name="digits"))


@pytest.fixture(scope="session")
def tiny_config() -> Config:
    """Three rounds of FedPU on scikit-learn's digits: well under a second."""
    return Config.from_dict(
        {
            "data": {"name": "digits"},
            "partition": {"clients": 5},
            "labelling": {"positive": 2},
            "model": {"name": "mlp", "hidden": [16]},
            "aggregation": {"rounds": 3, "batch_size": 50, "lr": 0.1},
            "engine": {"workers": 1},
        }
    )


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def routes() -> dict[str, set[str]]:
    """Every path of Flower's SuperLink with its methods."""
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")
    from fastapi.routing import iter_route_contexts
    from flwr.superlink.main import create_app

    found: dict[str, set[str]] = {}
    for route in iter_route_contexts(create_app().routes):
        found.setdefault(route.path, set()).update(route.methods or set())
    return found
