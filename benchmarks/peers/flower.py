"""Flower's simulation (Ray) with the Message API: a ClientApp, a ServerApp and the FedAvg strategy; two workers."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from . import common, torch_models

WORKERS = 2


class TimedFedAvg(FedAvg):
    """FedAvg that looks at the clock before every round."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.marks: list[float] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Note the time, then ask the clients to train."""
        self.marks.append(time.perf_counter())
        return super().configure_train(server_round, arrays, config, grid)


def train(message: Message, context: Context, task: common.Task) -> Message:
    """Train on one client. The data and one network stay in the memory of the worker."""
    torch.set_num_threads(1)
    images, labels = torch_models.client_tensors(task)
    client = int(context.node_config["partition-id"])
    network = torch_models.reused(task.model)
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    torch_models.train(network, images[client], labels[client], task.in_order)
    reply = RecordDict(
        {
            "arrays": ArrayRecord(network.state_dict()),
            "metrics": MetricRecord({"num-examples": task.examples}),
        }
    )
    return Message(content=reply, reply_to=message)


def main() -> None:
    """Run the task and report."""
    task = common.Task.of(common.parser(__doc__).parse_args())
    torch.set_num_threads(1)
    strategy = TimedFedAvg(
        fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=task.clients, min_available_nodes=task.clients
    )
    server, client = ServerApp(), ClientApp()
    client.train()(functools.partial(train, task=task))
    results: list[common.Weights] = []

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        start = ArrayRecord(torch_models.build(task.model).state_dict())
        arrays = strategy.start(grid=grid, initial_arrays=start, num_rounds=task.all_rounds).arrays
        strategy.marks.append(time.perf_counter())
        results.append({name: value.numpy() for name, value in arrays.to_torch_state_dict().items()})

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=task.clients,
        backend_config={"init_args": {"num_cpus": WORKERS}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    common.report(task, strategy.marks, results[0], ["flwr", "ray", "torch", "numpy"])


if __name__ == "__main__":
    main()
