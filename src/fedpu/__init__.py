"""Federated learning for clients that have labelled only some of their data and only some of the classes.

>>> import fedpu
>>> config = fedpu.Config.load(preset="quickstart")
>>> result = fedpu.run(config)          # result.accuracy, result.model, result.curve

Whoever adds a method, a partition, an aggregation or a model inherits from ``fedpu.Method``, ``fedpu.Partitioner``,
``fedpu.Aggregation`` or ``fedpu.Model``, and checks the result with :mod:`fedpu.testing`.
"""

from typing import TYPE_CHECKING, Any

from fedpu.aggregation import Aggregation, ServerState
from fedpu.applications.check import check_data
from fedpu.applications.comparison import Comparison, compare
from fedpu.applications.experiment import Prepared, Result, prepare, resume, run
from fedpu.applications.suggestion import config_for
from fedpu.applications.trained import TrainedModel, load_model
from fedpu.config import Config
from fedpu.data import Dataset, load, read
from fedpu.errors import FedpuError
from fedpu.labelling import Client, Federation
from fedpu.method import Batch, ClientRound, Method, Preparation
from fedpu.models import Model
from fedpu.partition import Partition, Partitioner
from fedpu.risk import FedPULoss
from fedpu.round import Update, Work

if TYPE_CHECKING:
    from fedpu.applications.classifier import FedPUClassifier

__all__ = [
    "Aggregation",
    "Batch",
    "Client",
    "ClientRound",
    "Comparison",
    "Config",
    "Dataset",
    "FedPUClassifier",
    "FedPULoss",
    "Federation",
    "FedpuError",
    "Method",
    "Model",
    "Partition",
    "Partitioner",
    "Preparation",
    "Prepared",
    "Result",
    "ServerState",
    "TrainedModel",
    "Update",
    "Work",
    "check_data",
    "compare",
    "config_for",
    "load",
    "load_model",
    "prepare",
    "read",
    "resume",
    "run",
]


def __getattr__(name: str) -> Any:
    """Import the estimator when it is asked for, since scikit-learn takes its time."""
    if name == "FedPUClassifier":
        from fedpu.applications.classifier import FedPUClassifier

        return FedPUClassifier
    raise AttributeError(f"module 'fedpu' has no attribute '{name}'")
