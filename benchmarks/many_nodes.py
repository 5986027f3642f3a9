"""A deployment with many nodes on one machine: how long it takes to let them in and to run a round, and its memory.

Every node is a process of its own, 'fedpu deploy node', with its key, on the loopback with TLS, as on machines of their
own. Some of them join late, when the run is waiting for them already; some are killed after the first round and stay
away, some are killed then and come back. Memory is the sum of what processes have for themselves and their parts of
what they share (PSS), from /proc.

    python benchmarks/many_nodes.py --nodes 50 --rounds 6 --late 5 --gone 5 --back 5 --out results/benchmarks
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from fedpu.applications.bench import machine
from fedpu.config import Config
from fedpu.deploy.folder import Deployment, create
from fedpu.deploy.local import LocalDeployment, deployed_config
from fedpu.flower.owner import registered_nodes
from fedpu.flower.processes import LOOPBACK, children, free_port

PATIENCE = 3600.0
DEADLINE = 120.0
"""seconds for an answer: what a node had taken before it was killed is lost, and is waited for that long"""
IDLE = 30.0
"""seconds for which all wait for a run, to see what that costs"""


def config(nodes: int, rounds: int) -> Config:
    """Return a task of a few small steps for each client."""
    settings = ["data.name=digits", "labelling.positive=2", "labelling.overlap=true", "model.name=mlp"]
    settings += ["model.hidden=[16]", f"aggregation.rounds={rounds}", "engine.name=flower", f"engine.wait={PATIENCE}"]
    return deployed_config(Config.load(overrides=[*settings, f"engine.deadline={DEADLINE}"]), nodes)


def proportional(process: int) -> float:
    """Return the megabytes of a process, with its part of what it shares with others."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(nodes: int, rounds: int, late: int, gone: int, back: int) -> dict[str, Any]:
    """Start a deployment with so many nodes, give it a run, and stop it."""
    task, names = config(nodes, rounds), [str(number) for number in range(nodes)]
    with tempfile.TemporaryDirectory() as name, children() as started:
        folder = create(Path(name) / "deployment", task, names, f"{LOOPBACK}:{free_port()}")
        local = LocalDeployment(folder, started)
        clock = Clock()
        local.register(names)
        registered = clock.lap()
        punctual = nodes - late
        for node in names[:punctual]:
            local.start_node(node)
        local.superlink.wait_for(lambda: _online(folder) == punctual, PATIENCE, "all nodes")
        online = clock.lap()
        before = cpu_seconds(local.superlink.process.pid)
        time.sleep(IDLE)
        idle = (cpu_seconds(local.superlink.process.pid) - before) / IDLE
        clock.lap()
        run = local.start_run(task, Path(name) / "run")
        for node in names[punctual:]:
            local.start_node(node)
        peaks: dict[str, float] = {}
        killed: list[str] = []

        def after(line: dict[str, Any]) -> None:
            print(f"round {line['round']}: {line['clients']} clients in {line['seconds']} s", flush=True)
            if killed:
                return
            peaks.update({node: proportional(child.process.pid) for node, child in local.nodes.items()})
            killed.extend(names[: gone + back])
            for node in killed:
                local.nodes[node].process.kill()
            for node in killed[gone:]:
                local.start_node(node)

        result = run.wait(after, seconds=PATIENCE)
        took = clock.lap()
        lines = [json.loads(line) for line in (Path(name) / "run" / "rounds.jsonl").read_text().splitlines()]
        alive = {node: child for node, child in local.nodes.items() if node not in killed}
        return {
            "nodes": nodes,
            "late": late,
            "gone": gone,
            "back": back,
            "register_seconds": registered,
            "all_online_seconds": online,
            "idle_superlink_cpu_share": round(idle, 3),
            "run_seconds": took,
            "round_seconds": [line["seconds"] for line in lines],
            "clients": [line["clients"] for line in lines],
            "left_out": [line.get("left_out", {}) for line in lines],
            "accuracy": result["accuracy"],
            "node_mb": sorted(round(megabytes, 1) for megabytes in peaks.values()),
            "node_cpu_seconds": sorted(round(cpu_seconds(child.process.pid), 2) for child in alive.values()),
            "superlink_mb": round(proportional(local.superlink.process.pid), 1),
            "superlink_cpu_seconds": round(cpu_seconds(local.superlink.process.pid), 1),
        }


def _online(folder: Deployment) -> int:
    return [state for _, state in registered_nodes(folder)].count("online")


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
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--late", type=int, default=0, help="nodes that start when the run waits for them")
    parser.add_argument("--gone", type=int, default=0, help="nodes that are killed after the first round, for good")
    parser.add_argument("--back", type=int, default=0, help="nodes that are killed then, and start again")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    chosen = parser.parse_args()
    found = {"machine": machine(), **measure(chosen.nodes, chosen.rounds, chosen.late, chosen.gone, chosen.back)}
    text = json.dumps(found, indent=1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / f"nodes-{chosen.nodes}.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
