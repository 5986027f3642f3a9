"""tracking: a run's rounds in the formats of other tools, while it goes on."""

from fedpu.tracking.base import Tracker, numbers
from fedpu.tracking.mlflow import MLflow
from fedpu.tracking.settings import Record
from fedpu.tracking.tensorboard import TensorBoard
from fedpu.tracking.trackers import TRACKERS

__all__ = ["TRACKERS", "MLflow", "Record", "TensorBoard", "Tracker", "numbers"]
