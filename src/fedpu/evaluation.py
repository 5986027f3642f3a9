"""How good a model is: accuracy and loss on the test set, over all classes and for each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Tensor, nn

from fedpu.data import Normalisation
from fedpu.engine.stacked import StackedNetwork
from fedpu.labelling import Evaluation

BATCH = 500


@dataclass(frozen=True)
class Metrics:
    """Test metrics; accuracies between 0 and 1. A class without test examples has none."""

    accuracy: float
    loss: float
    per_class_accuracy: list[float | None]


def evaluate(network: nn.Module, evaluation: Evaluation, classes: int, device: torch.device) -> Metrics:
    """Measure a network on the test set."""
    logits = predict(network, evaluation.inputs, evaluation.normalisation, device)
    right = (logits.argmax(dim=1) == evaluation.labels).double()
    counts = torch.bincount(evaluation.labels, minlength=classes)
    hits = torch.bincount(evaluation.labels, weights=right, minlength=classes)
    return Metrics(
        accuracy=float(right.mean()),
        loss=float(F.cross_entropy(logits.double(), evaluation.labels)),
        per_class_accuracy=[float(h / c) if c else None for h, c in zip(hits, counts, strict=True)],
    )


@torch.no_grad()
def predict(
    network: nn.Module, inputs: Num[Tensor, "n *shape"], normalisation: Normalisation, device: torch.device
) -> Float[Tensor, "n C"]:
    """Return the logits of stored inputs, a batch at a time, on the CPU."""
    twin = StackedNetwork.of(network) if device.type == "cpu" else None
    if twin is not None:  # several times faster than the network itself
        parameters = twin.views(twin.flatten(dict(network.state_dict()))[None])
        batches = (normalisation(batch).movedim(0, -1)[None] for batch in inputs.split(BATCH))
        return torch.cat([twin.forward(parameters, batch.contiguous())[0].T for batch in batches])
    network = network.to(device).eval()
    return torch.cat([network(normalisation(batch.to(device))).cpu() for batch in inputs.split(BATCH)])
