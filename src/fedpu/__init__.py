"""Federated learning for clients that have labelled only some of their data and only some of the classes.

>>> import fedpu
>>> config = fedpu.Config.load(preset="quickstart")
>>> result = fedpu.run(config)          # result.accuracy, result.model, result.curve

Whoever adds a method, a partition, an aggregation or a model inherits from ``fedpu.Method``, ``fedpu.Partitioner``,
``fedpu.Aggregation`` or ``fedpu.Model``, and checks the result with :mod:`fedpu.testing`.

Names are imported when they are first used: PyTorch takes seconds, which ``fedpu --help`` should not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedpu.aggregation import Aggregation, ServerState
    from fedpu.applications.check import check_data
    from fedpu.applications.classifier import FedPUClassifier
    from fedpu.applications.comparison import Comparison, compare
    from fedpu.applications.experiment import resume, run
    from fedpu.applications.prepared import Prepared, prepare
    from fedpu.applications.suggestion import config_for
    from fedpu.applications.trained import TrainedModel, load_model
    from fedpu.applications.training import Result
    from fedpu.config import Config
    from fedpu.data import Dataset, load, read
    from fedpu.errors import FedpuError
    from fedpu.labelling import Client, Federation
    from fedpu.method import Batch, ClientRound, Method, Preparation
    from fedpu.models import Model
    from fedpu.partition import Partition, Partitioner
    from fedpu.report import write_report
    from fedpu.risk import FedPULoss
    from fedpu.round import Update, Work

__version__ = "0.2.0.dev0"

_HOME = {
    "fedpu.aggregation": ("Aggregation", "ServerState"),
    "fedpu.applications.check": ("check_data",),
    "fedpu.applications.classifier": ("FedPUClassifier",),
    "fedpu.applications.comparison": ("Comparison", "compare"),
    "fedpu.applications.experiment": ("resume", "run"),
    "fedpu.applications.prepared": ("Prepared", "prepare"),
    "fedpu.applications.suggestion": ("config_for",),
    "fedpu.applications.trained": ("TrainedModel", "load_model"),
    "fedpu.applications.training": ("Result",),
    "fedpu.config": ("Config",),
    "fedpu.data": ("Dataset", "load", "read"),
    "fedpu.errors": ("FedpuError",),
    "fedpu.labelling": ("Client", "Federation"),
    "fedpu.method": ("Batch", "ClientRound", "Method", "Preparation"),
    "fedpu.models": ("Model",),
    "fedpu.partition": ("Partition", "Partitioner"),
    "fedpu.report": ("write_report",),
    "fedpu.risk": ("FedPULoss",),
    "fedpu.round": ("Update", "Work"),
}
"""where each name is defined"""

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
    "__version__",
    "check_data",
    "compare",
    "config_for",
    "load",
    "load_model",
    "prepare",
    "read",
    "resume",
    "run",
    "write_report",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            found = getattr(import_module(module), name)
            globals()[name] = found
            return found
    if not name.startswith("_"):
        try:
            return import_module(f"fedpu.{name}")  # fedpu.theory, say, without importing it first
        except ModuleNotFoundError as error:
            if error.name != f"fedpu.{name}":
                raise
    raise AttributeError(f"module 'fedpu' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
