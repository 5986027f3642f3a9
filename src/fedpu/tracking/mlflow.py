"""MLflow: one MLflow run per run, in the tracking server or database that MLflow is set to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fedpu.tracking.base import Tracker, flat

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

EXPERIMENT = "fedpu"
DATABASE = "mlflow.db"
ID_FILE = "mlflow-run-id.txt"


class MLflow(Tracker):
    """Parameters, and metrics by round. ``MLFLOW_TRACKING_URI`` says where; without it, a database in the run
    directory, which ``mlflow ui --backend-store-uri sqlite:///RUN/mlflow.db`` shows.
    """

    name: ClassVar[str] = "mlflow"
    needs: ClassVar[str] = "mlflow"

    def __init__(self) -> None:
        self._client: MlflowClient | None = None
        self._run = ""

    def start(self, folder: Path, config: Mapping[str, Any], done: int) -> None:
        """Begin a run of MLflow's, or go on with the one whose id is in the run directory."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder / DATABASE).resolve()}"
        self._client = MlflowClient(tracking_uri=where)
        file = folder / ID_FILE
        if file.exists():
            self._run = file.read_text("utf-8").strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        self._run = self._client.create_run(number, run_name=folder.name).info.run_id
        self._client.log_batch(self._run, params=[Param(key, value[:6000]) for key, value in flat(config).items()])
        file.write_text(f"{self._run}\n", "utf-8")

    def log(self, number: int, values: Mapping[str, float]) -> None:
        """Write the numbers of a round."""
        from mlflow.entities import Metric

        assert self._client is not None
        now = int(time.time() * 1000)
        self._client.log_batch(self._run, metrics=[Metric(name, value, now, number) for name, value in values.items()])

    def end(self, finished: bool) -> None:
        """Say how the run ended."""
        if self._client is not None and self._run:
            self._client.set_terminated(self._run, status="FINISHED" if finished else "KILLED")
