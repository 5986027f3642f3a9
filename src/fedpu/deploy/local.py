"""A whole deployment on the loopback: SuperLink and nodes as processes of this machine, with TLS and keys."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedpu.applications.prepared import prepare
from fedpu.applications.training import OnRound
from fedpu.config import Config
from fedpu.deploy.control import register, start_run
from fedpu.deploy.folder import Deployment, create, refuse_validation, write_config
from fedpu.deploy.server import ERROR_FILE
from fedpu.errors import ConfigError, FedpuError
from fedpu.flower.access import private_folder
from fedpu.flower.processes import CONNECTION, LOOPBACK, Child, children, flwr, free_port, listening
from fedpu.record import RunDirectory

START = 120.0
POLL = 0.2
LOOK = 10.0
"""seconds without news after which the SuperLink is asked how the run is"""


class LocalDeployment:
    """SuperLink and nodes that run; one run after another can be given to them."""

    def __init__(self, deployment: Deployment, started: list[Child], logs: Path | None = None) -> None:
        self.deployment = deployment
        self._logs = private_folder(logs) if logs else deployment.folder
        self._started = started
        self.nodes: dict[str, Child] = {}
        self.superlink = self.start_superlink()
        self._apps = 0

    def start_superlink(self) -> Child:
        """Start the SuperLink, or start it again after its end; it keeps what it knows in a file."""
        command = [sys.executable, "-m", "fedpu", "deploy", "serve", str(self.deployment.folder), "--host", LOOPBACK]
        self.superlink = self.start(command, "superlink")
        self.superlink.wait_for(lambda: listening(self.deployment.port), START, "begun to listen")
        return self.superlink

    def register(self, names: list[str]) -> None:
        """Let nodes in."""
        for name in names:
            register(self.deployment, self.deployment.public_key(name), name)

    def start_node(self, name: str) -> Child:
        """Start a node, or start it again after its end."""
        command = [sys.executable, "-m", "fedpu", "deploy", "node", str(self.deployment.node_file(name))]
        self.nodes[name] = self.start(command, f"node-{name}")
        return self.nodes[name]

    def start(self, command: list[str], name: str) -> Child:
        """Start a command that is stopped with the rest; its output goes to a file of that name."""
        child = Child(command, self.deployment.home, self._logs / f"{name}.log", name=name)
        self._started.append(child)
        return child

    def start_run(self, config: Config, out: Path, resume: bool = False) -> Run:
        """Give a run to the SuperLink."""
        self._apps += 1
        app = self.deployment.folder / f"app-{self._apps}"
        write_config(app, config)
        return Run(self, start_run(self.deployment, app, out, resume), out)


class Run:
    """A run that a SuperLink has been given."""

    def __init__(self, local: LocalDeployment, number: str, out: Path) -> None:
        self.number = number
        self._local = local
        self._directory = RunDirectory(out)

    def wait(self, on_round: OnRound | None = None, seconds: float | None = None) -> dict[str, Any]:
        """Wait for the end, telling of each round; return the result or say what went wrong."""
        shown, news, begun = 0, time.monotonic(), time.monotonic()
        while (result := self._directory.result()) is None:
            lines = self._directory.rounds() if self._directory.rounds_file.exists() else []
            for line in lines[shown:]:
                news = time.monotonic()
                if on_round:
                    on_round(line)
            shown = max(shown, len(lines))
            self._refuse_failure(time.monotonic() - news > LOOK)
            if time.monotonic() - news > LOOK:
                news = time.monotonic()
            if seconds is not None and time.monotonic() - begun > seconds:
                raise FedpuError(f"The run was not done after {seconds:g} seconds.\n{self._local.superlink.tail()}")
            time.sleep(POLL)
        if on_round:
            for line in self._directory.rounds()[shown:]:
                on_round(line)
        return result

    def _refuse_failure(self, look: bool) -> None:
        error = self._directory.path / ERROR_FILE
        if error.exists():
            raise FedpuError(error.read_text("utf-8").strip())
        link = self._local.superlink
        if not link.running():
            raise FedpuError(f"The SuperLink ended before the run did. It says:\n{link.tail()}")
        if look and self.status().startswith("finished") and self._directory.result() is None and not error.exists():
            raise FedpuError(f"Flower ended the run ({self.status()}). The SuperLink says:\n{link.tail()}")

    def status(self) -> str:
        """Return what Flower says of the run, such as "running" or "finished:failed"."""
        listed = json.loads(
            flwr(["ls", CONNECTION, "--run-id", self.number, "--format", "json"], self._local.deployment.home)
        )
        return str(listed["runs"][0]["status"])


@contextmanager
def local_deployment(
    folder: Path, config: Config, names: list[str], logs: Path | None = None
) -> Iterator[LocalDeployment]:
    """Start a SuperLink and nodes, each a client of the configured data set; stop all of them at the end.

    What they say goes to ``logs``, or else to the folder of the deployment.
    """
    refuse_validation(config)
    prepare(config)  # what can't be handed out is refused here, and not by every node for itself
    deployment = create(folder, config, names, f"{LOOPBACK}:{free_port()}")
    with children() as started:
        local = LocalDeployment(deployment, started, logs)
        local.register(names)
        for name in names:
            local.start_node(name)
        yield local


def deployed_config(config: Config, nodes: int) -> Config:
    """Return the configuration with as many clients as there are nodes."""
    if "clients" not in type(config.partition).model_fields:
        raise ConfigError("A trial on one machine hands out a data set: use a partition.kind with partition.clients.")
    return config.with_("engine.name=flower", f"engine.clients={nodes}", f"partition.clients={nodes}")
