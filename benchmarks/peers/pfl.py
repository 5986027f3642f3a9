"""pfl-research: its PyTorch model, FederatedAveraging and SimulatedBackend. Under torchrun, one worker a process."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from . import common, torch_models


class Network(nn.Module):
    """A network with the two methods that pfl asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of a batch."""
        return F.cross_entropy(self.network(inputs), labels)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Weighted]:
        """Return nothing of interest; pfl evaluates in its first iteration, which is the warm-up round."""
        return {"examples": Weighted(0.0, len(labels))}


class Clock(TrainingProcessCallback):
    """Looks at the clock after every round."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_train_begin(self, *, model: Any) -> Metrics:
        """Note when the first round starts."""
        self.marks.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Note when a round ends."""
        self.marks.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    """Run the task and report."""
    task = common.Task.of(common.parser(__doc__).parse_args())
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002  pfl draws from the global generator, alike in every worker
    network = Network(torch_models.build(task.model))
    model = PyTorchModel(
        model=network,
        local_optimizer_create=lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=common.MOMENTUM),
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    images, labels = torch_models.client_tensors(task)
    # Every client once a round, in turn. pfl takes batches in the order of the data and has no shuffling to switch on.
    clients = FederatedDataset(
        lambda client: PyTorchTensorDataset((images[client], labels[client]), user_id=str(client)),
        get_user_sampler("minimize_reuse", list(range(task.clients))),
    )
    clock = Clock()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=task.all_rounds,
            evaluation_frequency=task.all_rounds + 1,
            train_cohort_size=task.clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=clients, val_data=clients, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=common.LEARNING_RATE, local_batch_size=common.BATCH_SIZE
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    if get_framework_module().distributed.global_rank == 0:
        common.report(task, clock.marks, torch_models.weights_of(network.network), ["pfl", "torch", "numpy"])
    if torch.distributed.is_initialized():
        # Leave together: a worker that loses its connection to one that has left aborts.
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
