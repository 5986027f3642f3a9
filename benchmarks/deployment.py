"""What a round of a deployment costs when clients do next to nothing: a SuperLink and three nodes on the loopback.

``fedpu-node`` is 'fedpu deploy node', one process that stays; ``flower-supernode`` is Flower's own command with the
same ClientApp, which starts a process a message, as it comes (a look every second) and with
a shorter poll interval.
The engine of one process stands beside them. CPU time, of all processes, depends less on what else the machine does.

    python benchmarks/deployment.py --rounds 10 --out results/benchmarks
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedpu.applications.bench import machine
from fedpu.applications.experiment import run
from fedpu.config import Config
from fedpu.deploy.client import NODE_FILE
from fedpu.deploy.folder import create
from fedpu.deploy.local import LocalDeployment, deployed_config
from fedpu.flower.processes import LOOPBACK, children, free_port

NODES = ["0", "1", "2"]
POLL = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"


@dataclass(frozen=True)
class Measured:
    """Seconds of every round after the first, and the CPU time of all processes in such a round."""

    seconds: list[float]
    cpu: float


def config(rounds: int) -> Config:
    """Return a task of one small step a client."""
    settings = ["data.name=digits", "labelling.positive=4", "labelling.overlap=true", "model.name=mlp"]
    settings += ["model.hidden=[16]", "aggregation.name=fedsgd", f"aggregation.rounds={rounds + 1}"]
    return deployed_config(Config.load(overrides=settings), len(NODES))


def deployed(rounds: int, start: Callable[[LocalDeployment, str], object]) -> Measured:
    """Measure the rounds of a deployment whose nodes are started in one way or another."""
    task = config(rounds)
    with tempfile.TemporaryDirectory() as name, children() as started:
        folder = create(Path(name) / "deployment", task, NODES, f"{LOOPBACK}:{free_port()}")
        local = LocalDeployment(folder, started)
        local.register(NODES)
        for node in NODES:
            start(local, node)
        seconds: list[float] = []
        cpu: list[float] = []

        def on_round(line: dict[str, Any]) -> None:
            seconds.append(line["seconds"])
            cpu.append(cpu_seconds({child.process.pid for child in started}))

        local.start_run(task, Path(name) / "run").wait(on_round, 1800.0)
    return Measured(seconds[1:], (cpu[-2] - cpu[0]) / (rounds - 1))


def cpu_seconds(sessions: set[int]) -> float:
    """Return the CPU time of all processes of those sessions, and of their children that have ended."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                total += sum(int(ticks) for ticks in fields[11:15])
    return total / os.sysconf("SC_CLK_TCK")


def fedpu_node(local: LocalDeployment, node: str) -> None:
    """Start a node that stays."""
    local.start_node(node)


def flower_supernode(local: LocalDeployment, node: str) -> None:
    """Start Flower's own."""
    folder = local.deployment
    certificates = folder.authority.parent
    command = [
        *("flower-supernode", "--superlink", folder.address, "--root-certificates", str(folder.authority)),
        *("--auth-supernode-private-key", str(folder.key(node)), "--host", LOOPBACK, "--port", str(free_port())),
        *("--ssl-ca-certfile", str(folder.authority), "--ssl-certfile", str(certificates / "server.pem")),
        *("--ssl-keyfile", str(certificates / "server.key")),
        *("--node-config", f'{NODE_FILE}="{folder.node_file(node)}"'),
    ]
    local.start(command, f"supernode-{node}")


def with_poll(interval: str, measure: Callable[[], Measured]) -> Measured:
    """Measure with another poll interval of Flower's executor."""
    os.environ[POLL] = interval
    try:
        return measure()
    finally:
        del os.environ[POLL]


def in_one_process(rounds: int) -> Measured:
    """Measure the plain engine of this machine."""
    cpu: list[float] = []
    task = config(rounds).with_("engine.name=reference", "engine.workers=1")
    result = run(task, on_round=lambda line: cpu.append(time.process_time()))
    return Measured([line["seconds"] for line in result.curve[1:]], (cpu[-1] - cpu[0]) / rounds)


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", help="comma-separated names")
    options = parser.parse_args()
    few = max(2, options.rounds // 3)
    ways: dict[str, tuple[str, Callable[[], Measured]]] = {
        "fedpu-node": ("three nodes, TLS and keys: `fedpu deploy node`", lambda: deployed(options.rounds, fedpu_node)),
        "flower-supernode-0.1": (
            "the same with `flower-supernode`, its executor polling every 0.1 s",
            lambda: with_poll("0.1", lambda: deployed(few, flower_supernode)),
        ),
        "flower-supernode": (
            "the same with `flower-supernode` as it comes (1 s)",
            lambda: with_poll("1", lambda: deployed(few, flower_supernode)),
        ),
        "reference": ("one process", lambda: in_one_process(options.rounds)),
    }
    chosen = options.only.split(",") if options.only else list(ways)
    measured = {}
    for name in chosen:
        measured[name] = ways[name][1]()
        print(name, measured[name], flush=True)
    lines = [
        "| a round of three clients that do next to nothing | best s | median s | CPU s |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, one in measured.items():
        lines.append(
            f"| {ways[name][0]} | {min(one.seconds):.2f} | {statistics.median(one.seconds):.2f} | {one.cpu:.2f} |"
        )
    table = "\n".join(lines) + "\n"
    print(table)
    if options.out:
        (options.out / "deployment.md").write_text(table)
        record = {
            "machine": machine(),
            "load": os.getloadavg(),
            "measured": {name: asdict(one) for name, one in measured.items()},
        }
        (options.out / "deployment.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
