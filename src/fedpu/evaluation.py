"""How good a model is: accuracy and loss on the test set, over all classes and for each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from fedpu.engine import predict
from fedpu.labelling import TestSet


@dataclass(frozen=True)
class Metrics:
    """Test metrics; accuracies between 0 and 1. A class without test examples has none."""

    accuracy: float
    loss: float
    per_class_accuracy: list[float | None]


def evaluate(network: nn.Module, test: TestSet, classes: int, device: torch.device) -> Metrics:
    """Measure a network on the test set."""
    logits = predict(network, test.inputs, test.normalisation, device)
    right = (logits.argmax(dim=1) == test.labels).double()
    counts = torch.bincount(test.labels, minlength=classes)
    hits = torch.bincount(test.labels, weights=right, minlength=classes)
    return Metrics(
        accuracy=float(right.mean()),
        loss=float(F.cross_entropy(logits.double(), test.labels)),
        per_class_accuracy=[float(h / c) if c else None for h, c in zip(hits, counts, strict=True)],
    )
