"""How fast the engine is on this machine: seconds per round, fixed costs, and memory, for few clients and for many."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fedpu.algorithm import rounds
from fedpu.applications.made_up import MadeUp
from fedpu.applications.memory import memory_of_all_processes
from fedpu.applications.prepared import prepare
from fedpu.applications.timed import WARM_UP, Timed
from fedpu.applications.training import first_state, guard_of, job_of
from fedpu.config import Config
from fedpu.errors import FedpuError
from fedpu.method import UPPER
from fedpu.privacy import ProtectedClients

EXAMPLES = 60_000


@dataclass(frozen=True)
class Measurement(Timed):
    """One number of clients: seconds of every round after the first, and the memory of all processes together."""

    clients: int
    examples: int
    seconds: list[float]
    memory_mb: float

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement as plain data."""
        return asdict(self) | {
            "best": self.best,
            "median": self.median,
            "examples_per_second": self.examples / self.best,
        }


@dataclass(frozen=True)
class Bench:
    """All measurements, with what a round and a client cost however little they do."""

    sizes: list[Measurement]
    seconds_per_round: float
    """a round of one client with one example"""
    seconds_per_client: float
    """one more client with one example, in a round of 1,000"""

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as plain data."""
        return {
            "sizes": [size.to_dict() for size in self.sizes],
            "seconds_per_round": self.seconds_per_round,
            "seconds_per_client": self.seconds_per_client,
        }


def bench(config: Config, clients: Sequence[int], repeats: int, on_size: Callable[[str], None]) -> Bench:
    """Measure rounds over 60,000 images (one image per client, if those are more), each in a process of its own."""
    sizes = []
    for count in clients:
        on_size(f"{count} clients")
        sizes.append(measure(config, count, max(EXAMPLES, count), repeats))
    on_size("fixed costs")
    small = config.with_("model.name=mlp")
    one, many = measure(small, 1, 1, repeats), measure(small, 1000, 1000, repeats)
    return Bench(sizes, one.best, (many.best - one.best) / 999)


def measure(config: Config, clients: int, examples: int, repeats: int) -> Measurement:
    """Measure rounds of that many clients in a fresh process, so that one size does not warm up memory for the next."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(config.to_toml(), clients, examples, repeats, sender))
    process.start()
    sender.close()
    try:
        seconds, memory = receiver.recv()
    except EOFError as error:
        raise FedpuError(
            f"The measurement of {clients} clients ended before its time; see the message above."
        ) from error
    finally:
        process.join()
    return Measurement(clients, examples, seconds, memory)


def alike(config: Config, clients: int) -> Config:
    """Return a configuration with that many clients, all alike, which cover ten classes together."""
    return config.with_(
        "partition.kind=iid",
        f"partition.clients={clients}",
        f"labelling.positive={math.ceil(10 / clients)}",
        "labelling.overlap=true",
    )


def _measure(config_text: str, clients: int, examples: int, repeats: int, sender: Any) -> None:
    import tomllib

    config = alike(Config.from_dict(tomllib.loads(config_text)), clients)
    config = config.with_(f"aggregation.rounds={repeats + WARM_UP}")
    if examples < 10:
        config = config.with_(f"method.name={UPPER}")  # too few examples to cover ten classes
    ready = prepare(config, MadeUp(examples=examples).dataset())
    job = job_of(config, ready.federation)
    memory = 0.0
    seconds = []
    with config.engine.start(job) as running:
        network, classes = job.initial_model(), len(ready.federation.classes)
        guard = guard_of(config, network, clients, classes)
        taking_part = ProtectedClients(running, guard) if guard else running
        state = first_state(config, network, clients, classes)
        for done in rounds(taking_part, config.aggregation, state, config.seed, guard.select if guard else None):
            seconds.append(done.seconds)
            memory = max(memory, memory_of_all_processes())
    sender.send((seconds[WARM_UP:], memory))


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    names = [line for line in _cpu_lines() if line.startswith("model name")]
    return {
        "cpu": names[0].partition(":")[2].strip() if names else "unknown",
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }


def _cpu_lines() -> list[str]:
    info = Path("/proc/cpuinfo")
    return info.read_text().splitlines() if info.exists() else []
