"""Flower's simulation gives the global model of the engine of one process."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")
pytest.importorskip("ray", reason="Flower's simulation is not installed: pip install 'fedpu[flower]'")

from fedpu.aggregation import ServerState
from fedpu.algorithm import rounds
from fedpu.config import Config
from fedpu.engine import FlowerEngine, Job
from fedpu.engine.flower.simulation import Simulation
from fedpu.experiment import prepare, run

pytestmark = pytest.mark.nodes

METHODS = ("fedpu", "positive-only", "supervised")
AGGREGATIONS = ("fedavg", "fedprox", "fedsgd")


@pytest.fixture(scope="module")
def parity_config() -> Config:
    """Five rounds of three clients that label four or more of ten digits each."""
    return Config.from_dict(
        {
            "data": {"name": "digits"},
            "partition": {"clients": 3},
            "labelling": {"positive": 4, "overlap": True},
            "model": {"name": "mlp", "hidden": [16]},
            "aggregation": {"rounds": 5, "local_epochs": 2, "batch_size": 50, "lr": 0.1, "stragglers": 0.5},
            "engine": {"name": "reference", "workers": 1},
        }
    )


def test_every_combination_has_the_model_of_one_process(parity_config: Config) -> None:
    combinations = [
        parity_config.with_(f"method.name={method}", f"aggregation.name={aggregation}")
        for method in METHODS
        for aggregation in AGGREGATIONS
    ]
    with Simulation(3, FlowerEngine(deadline=120)) as simulation:
        for config in [*combinations, parity_config.with_("priors.source=estimated", "priors.every=2")]:
            prepared = prepare(config)
            job = Job(prepared.federation, config.method, config.model, config.seed, config.priors)
            state = ServerState.initial(job.initial_model())
            clients = simulation.clients(job)
            for done in rounds(clients, config.aggregation, state, 3, config.seed):
                state = done.state
                assert done.clients == 3
                assert done.left_out == {}
            expected = run(config).model.state_dict()
            for name, value in state.model.items():
                assert torch.allclose(value, expected[name], rtol=0, atol=1e-5), f"{config.method}, {name}"
