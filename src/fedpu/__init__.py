"""Federated learning for clients that have labelled only some of their data and only some of the classes.

>>> import fedpu
>>> config = fedpu.Config.load(preset="quickstart")
>>> result = fedpu.run(config)          # result.accuracy, result.model, result.curve
"""

from fedpu.comparison import Comparison, compare
from fedpu.config import Config
from fedpu.data import Dataset, load
from fedpu.errors import FedpuError
from fedpu.experiment import Prepared, Result, prepare, resume, run
from fedpu.labelling import Evaluation, Federation
from fedpu.risk import FedPULoss

__all__ = [
    "Comparison",
    "Config",
    "Dataset",
    "Evaluation",
    "FedPULoss",
    "Federation",
    "FedpuError",
    "Prepared",
    "Result",
    "compare",
    "load",
    "prepare",
    "resume",
    "run",
]
