"""Flower's simulation as an engine: a SuperLink on the loopback, simulated nodes on Ray, and a bridge to this process.

Flower starts the ServerApp in a process of its own. Ours hands Flower's Grid over a local socket to the process that
runs the rounds, so that data, evaluation and record are where they are with any other engine.
"""

from __future__ import annotations

import os
import pickle
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any, cast

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedpu.engine.base import Clients, Job, expected_of
from fedpu.engine.client import ClientTrainer
from fedpu.engine.flower.client import Assignment, client_app
from fedpu.engine.flower.clients import NodeClients, Promised
from fedpu.engine.flower.settings import FlowerEngine
from fedpu.engine.pool import cores
from fedpu.errors import TrainingError
from fedpu.flower.app_folder import write_app
from fedpu.flower.exchange import Exchange
from fedpu.flower.grid import GridWire
from fedpu.flower.link_folder import LinkFolder
from fedpu.flower.messages import WORK
from fedpu.flower.processes import CONNECTION, Child, children, flwr, has_connection
from fedpu.flower.state_folder import StateFolder
from fedpu.flower.temporary import temporary_folder
from fedpu.flower.tls import write_secret
from fedpu.flower.wire import Request, Wire

START = 180.0
"""seconds that Flower and Ray have to start"""
STOP = 30.0
"""seconds that they have to stop"""
JOB = "job"


@contextmanager
def simulated_clients(settings: FlowerEngine, job: Job) -> Iterator[Clients]:
    """Start a simulation with one node per client."""
    with Simulation(len(job.federation), settings) as simulation:
        yield simulation.clients(job)


class Simulation:
    """A running simulation, which can take one job after another; they share its nodes."""

    def __init__(self, nodes: int, settings: FlowerEngine) -> None:
        self._count = nodes
        self._settings = settings
        self._jobs = 0

    def __enter__(self) -> Simulation:
        self._context = self._run()
        self.folder, self._wire = self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    @contextmanager
    def _run(self) -> Iterator[tuple[Path, _BridgeWire]]:
        with temporary_folder("fedpu-") as folder, children() as started:
            key = secrets.token_bytes(32)
            files = LinkFolder(folder)
            files.create()
            home = files.home
            # The key goes by a file of a folder that only this user can read.
            write_secret(folder / "key", key)
            write_app(
                folder / "app",
                server="from fedpu.engine.flower.simulation import bridge\n\napp = bridge",
                client="from fedpu.engine.flower.simulation import simulated_app\n\napp = simulated_app",
                config={"folder": str(folder)},
            )
            command = [sys.executable, "-m", "fedpu.flower.superlink", str(folder)]
            link = Child(command, home, folder / "superlink.log", name="The SuperLink")
            started.append(link)
            link.wait_for(lambda: has_connection(home), START, "begun to listen")
            with Listener(str(folder / "bridge"), "AF_UNIX", authkey=key) as listener:
                flwr(["run", str(folder / "app"), CONNECTION, "--federation-config", self._federation()], home)
                link.wait_for(lambda: bool(wait([_socket(listener)], 0.5)), START, "started the simulation")
                with listener.accept() as connection:
                    wire = _BridgeWire(connection, link)
                    simulation = wire.process()
                    yield folder, wire
                _wait_for_end(simulation)

    def _federation(self) -> str:
        workers = min(self._settings.workers or cores(), self._count)
        return (
            f"num-supernodes={self._count} client-resources-num-cpus=1 client-resources-num-gpus=0.0 "
            f"init-args-num-cpus={workers}"
        )

    def clients(self, job: Job) -> Clients:
        """Return the clients of a job; client k is at the k-th node."""
        self._jobs += 1
        path = self.folder / f"job-{self._jobs}.pickle"
        path.write_bytes(pickle.dumps(job))
        self._wire.wait_for_nodes(self._count)
        nodes = dict(enumerate(self._wire.nodes()))

        def complete(content: RecordDict) -> None:
            content[JOB] = ConfigRecord({"path": str(path)})

        exchange = Exchange(self._wire, self._settings, lambda: nodes)
        promised = Promised(expected_of(job), job.federation.sizes.tolist(), report_risk=True)
        return NodeClients(exchange, complete, promised, _states(path))


def _wait_for_end(process: int) -> None:
    """Let the simulation stop Ray, which it does once the bridge is down."""
    end = time.monotonic() + STOP
    while time.monotonic() < end:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)


def _socket(listener: Listener) -> Any:
    return listener._listener._socket  # type: ignore[attr-defined]


class _BridgeWire(Wire):
    """The wire of a ServerApp in another process."""

    def __init__(self, connection: Connection, link: Child) -> None:
        self._connection = connection
        self._link = link

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            self._connection.send((name, arguments))
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise TrainingError(f"Flower's simulation ended before its time. It says:\n{self._link.tail()}") from error

    def nodes(self) -> list[int]:
        found: list[int] = self._call("nodes")
        return found

    def push(self, requests: Sequence[Request]) -> list[str | None]:
        numbers: list[str | None] = self._call("push", list(requests))
        return numbers

    def pull(self, numbers: Iterable[str]) -> list[Message]:
        replies: list[Message] = self._call("pull", list(numbers))
        return replies

    def process(self) -> int:
        number: int = self._call("process")
        return number

    def wait_for_nodes(self, count: int) -> None:
        self._link.wait_for(lambda: len(self.nodes()) >= count, START, f"{count} simulated nodes")


bridge = ServerApp()


@bridge.main()
def serve(grid: Grid, context: Context) -> None:
    """Do with the Grid what the process at the other end of the bridge asks, until it hangs up."""
    folder = Path(str(context.run_config["folder"]))
    wire = GridWire(grid)
    calls: dict[str, Callable[..., Any]] = {
        "process": os.getpid,
        "nodes": wire.nodes,
        "push": wire.push,
        "pull": wire.pull,
    }
    with connect(str(folder / "bridge"), "AF_UNIX", authkey=(folder / "key").read_bytes()) as connection:
        while True:
            try:
                name, arguments = connection.recv()
            except EOFError:
                return
            connection.send(calls[name](*arguments))


@lru_cache(maxsize=1)
def _trainer(path: str) -> ClientTrainer:
    """Return the trainer of a job, which a worker keeps until it is given another."""
    job: Job = pickle.loads(Path(path).read_bytes())
    return ClientTrainer(job, torch.device("cpu"))


def _states(job: Path) -> StateFolder:
    """Return where the clients of a job keep what stays with them."""
    return StateFolder(job.with_suffix(".states"))


def _simulated(content: RecordDict, context: Context) -> Assignment:
    path = Path(str(cast(Any, content[JOB])["path"]))
    trainer = _trainer(str(path))
    job = replace(trainer.job, negatives=trainer.negatives)
    work: Any = content[WORK]
    client = job.federation.client(int(work["client"]))
    return Assignment(job, client, trainer.network, _states(path), report_risk=True)


simulated_app: ClientApp = client_app(_simulated)
