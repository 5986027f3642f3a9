"""fedpu beside other simulators in one interleaved run, each in its own environment; see README.md."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
import numpy as np
from peers import common

SCENARIOS = {
    "10x6000": "paper-cnn",
    "1000x60": "paper-cnn",
    "1000x1": "mlp",
    "5x10000": "colour-cnn",
    "1000x50": "colour-cnn",
}
CHECKS = (("10x300", "paper-cnn"), ("10x100", "mlp"), ("4x100", "colour-cnn"))
TOLERANCE = 1e-5
COLOURED = "random images of CIFAR-10's shape"
ALL_PEERS = (*harness.PEERS, "fedpu-local", "fedpu-local:bfloat16", "fedpu-reference")


@dataclass
class Outcome:
    """What one peer did in one scenario over all repeats."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    @property
    def seconds(self) -> list[float]:
        """The seconds of every timed round."""
        return [second for run in self.runs for second in run["seconds"]]

    @property
    def best(self) -> float:
        """The fastest round."""
        return min(self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        if not self.runs:
            return {"error": self.error}
        return {
            "best_seconds": self.best,
            "median_seconds": statistics.median(self.seconds),
            "versions": self.runs[0]["versions"],
            "error": self.error,
            "runs": [{key: value for key, value in run.items() if key != "versions"} for run in self.runs],
        }


def main() -> int:
    """Compare, or check that all compute the same; return the exit code."""
    options = arguments()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    with tempfile.TemporaryDirectory(prefix="fedpu-benchmarks-") as name:
        scratch = Path(name)
        os.environ["FLWR_HOME"] = str(scratch / "flower")
        kind = harness.write_data(scratch / "data.npz")
        pythons = install(options.peers, options.environments)
        if options.check:
            # In bfloat16 models differ by its rounding; fedpu's is tested against exact sums in tests/engine.
            return check({name: python for name, python in pythons.items() if ":" not in name}, scratch)
        return compare(options, pythons, scratch, kind)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = ", ".join(SCENARIOS)
    parser.add_argument(
        "--scenario", type=words, default=list(SCENARIOS), help=f"CLIENTSxEXAMPLES[:MODEL], by commas; default: {names}"
    )
    parser.add_argument("--peers", type=words, default=list(ALL_PEERS), help="by commas; fedpu-NAME is our engine NAME")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of a run, after one that warms up")
    parser.add_argument("--repeats", type=int, default=3, help="runs of every peer, in turn with the others")
    parser.add_argument("--cores", type=int, default=2, help="cores that everything is held to")
    parser.add_argument("--out", type=Path, help="folder for a JSON file and a table a scenario")
    parser.add_argument("--environments", type=Path, default=harness.ROOT / ".bench", help="where peers are installed")
    parser.add_argument("--check", action="store_true", help="compare the global models after one round, not the times")
    return parser.parse_args()


def words(text: str) -> list[str]:
    """Split at commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def install(names: list[str], environments: Path) -> dict[str, Path]:
    """Return the interpreter of every peer; those that can't be installed are left out, with a word on why."""
    pythons: dict[str, Path] = {}
    for name in names:
        try:
            pythons[name] = harness.python_of(harness.find(name), environments)
        except harness.PeerError as error:
            print(f"{name}: {error}", file=sys.stderr)
    return pythons


def task(scenario: str, data: Path) -> list[str]:
    """Return the options of a scenario such as ``10x6000`` or ``100x600:mlp``."""
    size, _, model = scenario.partition(":")
    clients, _, examples = size.partition("x")
    if not (clients.isdigit() and examples.isdigit()) or not 0 < int(clients) * int(examples) <= harness.IMAGES:
        raise SystemExit(
            f"'{scenario}' is no scenario: write CLIENTSxEXAMPLES, {harness.IMAGES} images at most, such as 10x6000."
        )
    model = model or SCENARIOS.get(size, "paper-cnn")
    return ["--clients", clients, "--examples", examples, "--model", model, "--data", str(data)]


def compare(options: argparse.Namespace, pythons: dict[str, Path], scratch: Path, data: str) -> int:
    """Time every scenario; print a table and write a JSON file for each."""
    machine = harness.machine()
    missing = len(options.peers) - len(pythons)
    for scenario in options.scenario:
        command = [*task(scenario, scratch / "data.npz"), "--rounds", str(options.rounds)]
        shown_data = COLOURED if command[command.index("--model") + 1] in common.COLOURED else data
        outcomes = interleaved(pythons, command, options.repeats)
        missing += sum(outcome.error is not None for outcome in outcomes.values())
        print(f"\n{scenario}: {machine['cpu']}, {machine['cores_used']} cores, {shown_data}\n")
        shown = table(outcomes, int(scenario.partition("x")[0]))
        print(shown, flush=True)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            record = {
                "scenario": scenario,
                "command": shlex.join(["python", "benchmarks/compare.py", *sys.argv[1:]]),
                "date": time.strftime("%Y-%m-%d"),
                "machine": machine,
                "data": shown_data,
                "environment": harness.ENVIRONMENT,
                "peers": {name: outcome.to_dict() for name, outcome in outcomes.items()},
            }
            path = options.out / f"{scenario.replace(':', '-')}.json"
            path.write_text(json.dumps(record, indent=2) + "\n")
            path.with_suffix(".md").write_text(shown + "\n")
            print(f"\nWritten to {path}")
    return int(missing > 0)


def interleaved(pythons: dict[str, Path], command: list[str], repeats: int) -> dict[str, Outcome]:
    """Run every peer once in turn, then again: whatever disturbs the machine disturbs all of them."""
    outcomes = {name: Outcome() for name in pythons}
    for repeat in range(repeats):
        for name, outcome in outcomes.items():
            if outcome.error is None:
                try:
                    outcome.runs.append(harness.run(harness.find(name), pythons[name], command))
                    seconds = " ".join(f"{second:.3f}" for second in outcome.runs[-1]["seconds"])
                except harness.PeerError as error:
                    outcome.error = seconds = str(error)
                print(f"  repeat {repeat + 1}  {name:15}  {seconds}", flush=True)
    return outcomes


def table(outcomes: dict[str, Outcome], clients: int) -> str:
    """Return the seconds per round as a Markdown table, with the ratio of each peer's best to each fedpu engine's."""
    ours = {name: outcome for name, outcome in outcomes.items() if name.startswith(harness.OURS) and outcome.runs}
    lines = [
        ["peer", "best s per round", "median", "best ms per client", "start-up s", *(f"÷ {name}" for name in ours)],
        ["---"] + ["---:"] * (4 + len(ours)),
    ]
    for name, outcome in outcomes.items():
        if outcome.runs:
            startup = min(run["startup_seconds"] + sum(run["warmup_seconds"]) for run in outcome.runs)
            numbers = [
                f"{outcome.best:.3f}",
                f"{statistics.median(outcome.seconds):.3f}",
                f"{1000 * outcome.best / clients:.2f}",
                f"{startup:.1f}",
                *(f"{outcome.best / own.best:.2f}" for own in ours.values()),
            ]
        else:
            numbers = ["failed"] + ["–"] * (3 + len(ours))
        lines.append([name, *numbers])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def check(pythons: dict[str, Path], scratch: Path) -> int:
    """Run one round of every peer from the same weights with the same batches; print how far the models are apart."""
    worst = 0.0
    for scenario, model in CHECKS:
        print(f"\n{scenario} {model}, one round, largest difference from {next(iter(pythons))}:", flush=True)
        reference: common.Weights | None = None
        for name, python in pythons.items():
            saved = scratch / f"{name}.npz"
            command = [*task(f"{scenario}:{model}", scratch / "data.npz"), "--rounds", "1", "--warmup", "0"]
            try:
                harness.run(harness.find(name), python, [*command, "--in-order", "--save", str(saved)])
            except harness.PeerError as error:
                print(f"  {name:15}  {error}")
                worst = float("inf")
                continue
            with np.load(saved) as file:
                weights = dict(file)
            reference = reference or weights
            difference, moved = apart(weights, reference), apart(weights, common.initial_weights(model))
            worst = max(worst, difference)
            print(f"  {name:15}  {difference:.1e}   (the round moved the model by {moved:.1e})", flush=True)
    print(f"\nAll models agree to {worst:.1e}." if worst <= TOLERANCE else f"\nNOT the same: {worst:.1e} apart.")
    return int(worst > TOLERANCE)


def apart(one: common.Weights, other: common.Weights) -> float:
    """Return the largest difference between two models, refusing models of different shapes."""
    if {name: value.shape for name, value in one.items()} != {name: value.shape for name, value in other.items()}:
        return float("inf")
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


if __name__ == "__main__":
    sys.exit(main())
