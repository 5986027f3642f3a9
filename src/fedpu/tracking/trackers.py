"""The trackers by name."""

from __future__ import annotations

from fedpu.registry import Registry
from fedpu.tracking.base import Tracker
from fedpu.tracking.mlflow import MLflow
from fedpu.tracking.tensorboard import TensorBoard

TRACKERS: Registry[type[Tracker]] = Registry(
    "tracker", {tracker.name: tracker for tracker in (TensorBoard, MLflow)}, group="fedpu.trackers", base=Tracker
)
