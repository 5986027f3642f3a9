"""Settings that suit a data set, for whoever brings one and knows no setting yet."""

from __future__ import annotations

from fedpu.config import Config
from fedpu.data import FROM_PYTHON, Dataset
from fedpu.method import SUGGESTED, UPPER

ROUNDS, BATCH, RATE = 50, 20, 0.05
"""for data of thousands of examples rather than tens of thousands, with which a round has few steps"""
SMALLEST_IMAGE = {1: ("paper-cnn", 16), 3: ("colour-cnn", 8)}
"""by channels: the model for images, and from how many pixels on it works"""


def suggested(data: Dataset) -> list[str]:
    """Return the settings that suit a data set, as ``--set`` takes them; labels are left as they are given."""
    unlabelled = bool((data.labels < 0).any())
    found = ["partition.kind=column"] if data.client is not None else ["partition.kind=iid", "partition.clients=1"]
    found.append("labelling.positive=as-given")
    found += _partly_labelled(data) if unlabelled else [f"method.name={UPPER}"]
    found += _model(data)
    return [*found, f"aggregation.rounds={ROUNDS}", f"aggregation.batch_size={BATCH}", f"aggregation.lr={RATE}"]


def _partly_labelled(data: Dataset) -> list[str]:
    """Return how to learn from unlabelled data whose class shares nobody has told."""
    if data.tokens:  # token ids are no vectors that an estimator could look at, and have no other views
        return ["priors.source=estimated", "priors.features=model"]
    views = ['augmentation.strong=["affine"]'] if len(data.shape) == 3 else []
    return ["priors.source=estimated", f"method.name={SUGGESTED}", *views]


def config_for(data: Dataset, *overrides: str) -> Config:
    """Return a configuration that suits a data set, with settings of your own on top."""
    return Config.load(overrides=[f'data.name="{FROM_PYTHON}{data.name}"', *suggested(data), *overrides])


def _model(data: Dataset) -> list[str]:
    if data.tokens:
        largest = int(data.inputs.max())
        if len(data.test_inputs):
            largest = max(largest, int(data.test_inputs.max()))
        return ["model.name=text", f"model.vocabulary={largest + 1}"]
    if len(data.shape) == 3 and data.shape[0] in SMALLEST_IMAGE:
        name, smallest = SMALLEST_IMAGE[data.shape[0]]
        if min(data.shape[1:]) >= smallest:
            return [f"model.name={name}"]
    return ["model.name=mlp"]
