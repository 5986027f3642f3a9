"""A deployment with many nodes on one machine: how long it takes to let them in and to run a round, and its memory.

Every node is a process of its own, 'fedpu deploy node', with its key, on the loopback with TLS, as on machines of their
own. Memory is the sum of what processes have for themselves and their parts of what they share (PSS), from /proc.

    python benchmarks/many_nodes.py --nodes 50 --rounds 2 --out results/benchmarks
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpu.applications.bench import machine
from fedpu.config import Config
from fedpu.deploy.folder import create
from fedpu.deploy.local import LocalDeployment, deployed_config
from fedpu.flower.owner import registered_nodes
from fedpu.flower.processes import LOOPBACK, Child, children, free_port

PATIENCE = 3600.0


def config(nodes: int, rounds: int) -> Config:
    """Return a task of a few small steps for each client."""
    settings = ["data.name=digits", "labelling.positive=2", "labelling.overlap=true", "model.name=mlp"]
    settings += ["model.hidden=[16]", f"aggregation.rounds={rounds}", "engine.name=flower", f"engine.wait={PATIENCE}"]
    return deployed_config(Config.load(overrides=[*settings, f"engine.deadline={PATIENCE}"]), nodes)


def proportional(process: int) -> float:
    """Return the megabytes of a process, with its part of what it shares with others."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(nodes: int, rounds: int) -> dict[str, Any]:
    """Start a deployment with so many nodes, give it a run, and stop it."""
    task, names = config(nodes, rounds), [str(number) for number in range(nodes)]
    with tempfile.TemporaryDirectory() as name, children() as started:
        folder = create(Path(name) / "deployment", task, names, f"{LOOPBACK}:{free_port()}")
        local = LocalDeployment(folder, started)
        clock = Clock()
        local.register(names)
        registered = clock.lap()
        for node in names:
            local.start_node(node)
        local.superlink.wait_for(
            lambda: [state for _, state in registered_nodes(folder)].count("online") == nodes, PATIENCE, "all nodes"
        )
        online = clock.lap()
        result = local.start_run(task, Path(name) / "run").wait(seconds=PATIENCE)
        run = clock.lap()
        lines = [json.loads(line) for line in (Path(name) / "run" / "rounds.jsonl").read_text().splitlines()]
        processes: Sequence[Child] = list(local.nodes.values())
        return {
            "nodes": nodes,
            "register_seconds": registered,
            "all_online_seconds": online,
            "run_seconds": run,
            "round_seconds": [line["seconds"] for line in lines],
            "clients": [line["clients"] for line in lines],
            "left_out": [line.get("left_out", {}) for line in lines],
            "accuracy": result["accuracy"],
            "node_mb": sorted(round(proportional(child.process.pid), 1) for child in processes),
            "node_cpu_seconds": sorted(round(cpu_seconds(child.process.pid), 2) for child in processes),
            "superlink_mb": round(proportional(local.superlink.process.pid), 1),
        }


class Clock:
    """Tells the seconds since it was last asked."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def lap(self) -> float:
        """Return them."""
        before, self._last = self._last, time.monotonic()
        return round(self._last - before, 1)


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    chosen = parser.parse_args()
    found = {"machine": machine(), **measure(chosen.nodes, chosen.rounds)}
    text = json.dumps(found, indent=1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / f"nodes-{chosen.nodes}.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
