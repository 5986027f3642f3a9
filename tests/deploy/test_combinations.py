"""Every combination of the paper's methods and aggregations, and every other method, on nodes: the model of one
process.

Server and nodes are at one table; ``test_deployment.py`` has some of the combinations on processes and sockets.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from deploy.in_process import PUBLIC, Table
from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.data import Dataset
from fedpu.deploy.local import deployed_config
from fedpu.method import METHODS
from lively import LIVELY

AGGREGATIONS = {
    "fedavg": ["aggregation.name=fedavg"],
    "fedprox": ["aggregation.name=fedprox", "aggregation.stragglers=0.5"],
    "fedsgd": ["aggregation.name=fedsgd"],
}


class Trial(Table):
    """Nodes that are clients of the configured data set."""

    def write_file(self, name: str, accepts: str = "") -> None:
        lines = [f'name = "{name}"', f"partition = {name}", f'key = "{name}.key"', f'server_key = "{PUBLIC}"']
        (self.folder / f"{name}.toml").write_text("\n".join(lines) + "\n")


PAPERS = ("fedpu", "positive-only", "supervised")
OTHERS = [name for name in METHODS if name not in PAPERS]


@pytest.mark.parametrize(
    ("method", "aggregation"), [*itertools.product(PAPERS, AGGREGATIONS), *((name, "fedavg") for name in OTHERS)]
)
def test_the_model_is_that_of_one_process(digits: Dataset, tmp_path: Path, method: str, aggregation: str) -> None:
    single = Config.from_dict(
        {
            "data": {"name": "digits"},
            "labelling": {"positive": 4, "overlap": True},
            "augmentation": {"strong": ["shift", "noise"], "shift": 1},
            "method": {"name": method},
            "model": {"name": "mlp", "hidden": [16]},
            "aggregation": {"rounds": 3, "local_epochs": 2, "batch_size": 50, "lr": 0.1},
            "engine": {"name": "flower", "wait": 1.0},
        }
    )
    config = deployed_config(single.with_(*AGGREGATIONS[aggregation], *LIVELY.get(method, [])), 3)
    done = Trial(tmp_path, digits, names=["0", "1", "2"]).train(config)
    expected = run(config.with_("engine.name=reference", "engine.workers=1"))
    for name, value in expected.model.state_dict().items():
        torch.testing.assert_close(done.model.state_dict()[name], value, rtol=0, atol=1e-5)
    assert [line["clients"] for line in done.curve] == [3] * 3
    assert all("left_out" not in line for line in done.curve)
