"""Many nodes on the loopback, some joining late, some gone for good: does the run go on, and what does a round take?

Every node has its own key, file, connection and ledger; several of them share a process, so that a laptop can hold
them. One group connects only when the run already waits for it, and one is killed after the second round.

    python benchmarks/many_nodes.py --nodes 50 --rounds 5 --out results/benchmarks
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from fedpu.applications.bench import machine
from fedpu.config import Config
from fedpu.deploy.folder import create
from fedpu.deploy.local import LocalDeployment, deployed_config
from fedpu.deploy.node import run_node
from fedpu.flower.processes import LOOPBACK, Child, children, free_port

TENTH = 10
WAIT = 1800.0
GONE_AFTER = 2


def host(files: list[str]) -> None:
    """Be several nodes at once, until stopped."""
    for file in files:
        threading.Thread(target=run_node, args=(Path(file), lambda text: None), daemon=True).start()
    threading.Event().wait()


def config(nodes: int, rounds: int) -> Config:
    """Return a task of one small step for each client."""
    settings = ["data.name=digits", "labelling.positive=4", "labelling.overlap=true", "model.name=mlp"]
    settings += ["model.hidden=[16]", "aggregation.name=fedsgd", f"aggregation.rounds={rounds}"]
    settings += ["engine.name=flower", f"engine.wait={WAIT}", "engine.deadline=300"]
    return deployed_config(Config.load(overrides=settings), nodes)


def measure(nodes: int, rounds: int) -> dict[str, Any]:
    """Run it; return what became of every round."""
    task, names = config(nodes, rounds), [str(number) for number in range(nodes)]
    few = max(1, nodes // TENTH)
    groups = {"late": names[:few], "gone": names[few : 2 * few], "steady": names[2 * few :]}
    with tempfile.TemporaryDirectory() as folder, children() as started:
        deployment = create(Path(folder) / "deployment", task, names, f"{LOOPBACK}:{free_port()}")
        local = LocalDeployment(deployment, started)
        local.register(names)
        begun = time.monotonic()

        def start(group: str) -> Child:
            files = [str(deployment.node_file(name)) for name in groups[group]]
            return local.start([sys.executable, str(Path(__file__).resolve()), "--host", *files], group)

        start("steady")
        gone = start("gone")
        run = local.start_run(task, Path(folder) / "run")
        threading.Timer(30.0, lambda: start("late")).start()
        lines: list[dict[str, Any]] = []
        first: list[float] = []

        def on_round(line: dict[str, Any]) -> None:
            first.append(time.monotonic() - begun)
            lines.append(line)
            if line["round"] == GONE_AFTER:
                gone.process.kill()

        run.wait(on_round, WAIT)
    return {
        "nodes": nodes,
        "late": len(groups["late"]),
        "gone": len(groups["gone"]),
        "first_round_after": round(first[0], 1),
        "clients": [line["clients"] for line in lines],
        "left_out": [len(line.get("left_out", {})) for line in lines],
        "seconds": [round(line["seconds"], 2) for line in lines],
        "median": round(statistics.median(line["seconds"] for line in lines), 2),
    }


def main() -> None:
    """Measure and write what was found; or be nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--host", nargs="*", help="(used by the script itself) be these nodes")
    options = parser.parse_args()
    if options.host:
        host(options.host)
        return
    found = measure(options.nodes, options.rounds)
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "many_nodes.json").write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
