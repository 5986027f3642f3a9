"""Flower's simulation as an engine: a SuperLink on the loopback, simulated nodes on Ray, and a bridge to this process.

Flower starts the ServerApp in a process of its own. Ours hands Flower's Grid over a local socket to the process that
runs the rounds, so that data, evaluation and record are where they are with any other engine.
"""

from __future__ import annotations

import os
import pickle
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing.connection import Client as connect
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedpu.engine.base import Clients, Job, ModelState, Work
from fedpu.engine.client import ClientTrainer
from fedpu.engine.estimating import Estimating, estimates
from fedpu.engine.flower.app_folder import write_app
from fedpu.engine.flower.client import Assignment, client_app
from fedpu.engine.flower.clients import NodeClients
from fedpu.engine.flower.exchange import Exchange
from fedpu.engine.flower.processes import (
    CONNECTION,
    LOOPBACK,
    Child,
    children,
    flwr,
    free_port,
    listening,
    write_connection,
)
from fedpu.engine.flower.settings import FlowerEngine
from fedpu.engine.flower.wire import GridWire, Request, Wire
from fedpu.engine.pool import cores
from fedpu.errors import TrainingError

START = 180.0
"""seconds that Flower and Ray have to start"""
STOP = 30.0
"""seconds that they have to stop"""
JOB = "job"


@contextmanager
def simulated_clients(settings: FlowerEngine, job: Job) -> Iterator[Clients]:
    """Start a simulation with a node a client."""
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
        self._folder, self._wire = self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    @contextmanager
    def _run(self) -> Iterator[tuple[Path, _BridgeWire]]:
        with tempfile.TemporaryDirectory(prefix="fedpu-") as name, children() as started:
            folder, port = Path(name), free_port()
            home, key = folder / "flower", secrets.token_bytes(32)
            write_connection(home, f"{LOOPBACK}:{port}", None)
            # The key goes by a file of a folder that only this user can read.
            (folder / "key").write_bytes(key)
            write_app(
                folder / "app",
                server="from fedpu.engine.flower.simulation import bridge\n\napp = bridge",
                client="from fedpu.engine.flower.simulation import simulated_app\n\napp = simulated_app",
                config={"folder": str(folder)},
            )
            link = Child(_superlink(port), home, folder / "superlink.log")
            started.append(link)
            link.wait_for(lambda: listening(port), START, "begun to listen")
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
        path = self._folder / f"job-{self._jobs}.pickle"
        path.write_bytes(pickle.dumps(job))
        self._wire.wait_for_nodes(self._count)
        nodes = dict(enumerate(self._wire.nodes()))

        def complete(content: RecordDict) -> None:
            content[JOB] = ConfigRecord({"path": str(path)})

        clients = NodeClients(Exchange(self._wire, self._settings, lambda: nodes), complete)
        return Estimating(clients, job, torch.device("cpu")) if estimates(job.priors, job.method) else clients


def _wait_for_end(process: int) -> None:
    """Let the simulation stop Ray, which it does once the bridge is down."""
    end = time.monotonic() + STOP
    while time.monotonic() < end:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)


def _superlink(port: int) -> list[str]:
    return [
        *("flower-superlink", "--insecure", "--simulation", "--host", LOOPBACK, "--port", str(port)),
        "--disable-runtime-dependency-installation",
    ]


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


def _simulated(content: RecordDict, model: ModelState, work: Work, context: Context) -> Assignment:
    told: Any = content[JOB]
    trainer = _trainer(told["path"])
    job, task = trainer.job, trainer.task(work)
    return Assignment(job.federation.client(work.client), job.method, task, trainer.network, job.seed, report_risk=True)


simulated_app: ClientApp = client_app(_simulated)
