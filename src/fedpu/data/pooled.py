"""Training and test data pooled and cut anew, with a validation set, as FedMatch does (Jeong et al. 2021)."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedpu.data.dataset import Dataset
from fedpu.errors import ConfigError
from fedpu.randomness import numpy_generator


def pooled(data: Dataset, validation: int, test: int) -> Dataset:
    """Return the data with all of their examples in a random order: ``validation`` and ``test`` of them, then the rest.

    The order is the same for every seed, so that runs are tested on the same examples.
    """
    if data.client is not None or bool((data.labels < 0).any()):
        raise ConfigError(
            f"data.pooled needs the class of every example, and '{data.name}' says whose examples are or leaves some "
            "unlabelled. Remove it."
        )
    inputs = torch.cat([data.inputs, data.test_inputs])
    labels = torch.cat([data.labels, data.test_labels])
    if validation + test >= len(labels):
        raise ConfigError(
            f"data.pooled = [{validation}, {test}] leaves nothing to train on: '{data.name}' has {len(labels)} "
            "examples in all."
        )
    order = torch.from_numpy(numpy_generator(0, "pooled").permutation(len(labels)))
    held, tested, kept = order.split([validation, test, len(labels) - validation - test])
    missing = set(range(len(data.classes))) - set(labels[kept].tolist())
    if missing:
        raise ConfigError(f"data.pooled leaves no training example of class {min(missing)}: make its numbers smaller.")
    return replace(
        data,
        inputs=inputs[kept],
        labels=labels[kept],
        test_inputs=inputs[tested],
        test_labels=labels[tested],
        validation=(inputs[held], labels[held]) if validation else None,
    )
