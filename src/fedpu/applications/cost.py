"""What a run of a configuration costs before it is begun: seconds per round, memory, and the time of the whole run.

Beside it runs a yardstick, plain PyTorch on as many processes. Each contestant lives in processes of its own, and their
rounds are taken in turn, so that whatever disturbs the machine disturbs all of them.
"""

from __future__ import annotations

import multiprocessing
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from fedpu.aggregation import Aggregation
from fedpu.algorithm import rounds
from fedpu.applications.made_up import MadeUp
from fedpu.applications.memory import memory_of_all_processes
from fedpu.applications.prepared import Prepared, prepare
from fedpu.applications.timed import WARM_UP, Timed
from fedpu.applications.training import first_state, guard_of, job_of, serving_of
from fedpu.applications.yardstick import plain_rounds
from fedpu.config import Config
from fedpu.engine import Job, MachineEngine
from fedpu.errors import FedpuError
from fedpu.evaluation import evaluate
from fedpu.method import UPPER
from fedpu.privacy import ProtectedClients

ENDING = 60
"""seconds that a contestant may take to end"""
OURS, SUPERVISED, PLAIN = "fedpu", "fedpu, supervised", "plain PyTorch"


@dataclass(frozen=True)
class Contestant(Timed):
    """Whose rounds were measured."""

    name: str
    seconds: list[float]
    """of every round after the first"""
    memory_mb: float
    """the most that all of its processes held together"""


@dataclass(frozen=True)
class Cost:
    """What was measured of one configuration."""

    model: str
    shape: tuple[int, ...]
    clients: int
    examples: int
    """of all clients of a round"""
    parameters: int
    workers: int
    rounds: int
    evaluations: int
    evaluation_seconds: float
    method: str
    slow_because: str | None
    """why the engine's fast path can't be taken"""
    contestants: list[Contestant] = field(default_factory=list)

    @property
    def expected_seconds(self) -> float:
        """The time of the whole run: its rounds and measurements, at the middle speed."""
        return self.rounds * self.contestants[0].median + self.evaluations * self.evaluation_seconds

    @property
    def times_plain(self) -> float | None:
        """How many times faster than plain PyTorch the engine is with cross-entropy, by the best rounds."""
        named = {one.name: one for one in self.contestants}
        if PLAIN not in named:
            return None
        return named[PLAIN].best / named.get(SUPERVISED, self.contestants[0]).best

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as plain data."""
        told = [asdict(one) | {"best": one.best, "median": one.median} for one in self.contestants]
        for one in told:
            one["examples_per_second"] = self.examples / one["best"]
        more = {"expected_seconds": self.expected_seconds, "times_plain": self.times_plain}
        return asdict(self) | {"contestants": told} | more


def cost(
    config: Config, made_up: MadeUp | None, repeats: int, plain: bool, on_part: Callable[[str], None] = lambda _: None
) -> Cost:
    """Measure rounds of a configuration, on made-up data or, where there are none, on its own."""
    names = [OURS]
    if plain and isinstance(config.engine, MachineEngine):
        # The yardstick minimises the cross-entropy of all examples; beside another method it is a different task.
        names += [PLAIN] if config.method.fully_labelled else [SUPERVISED, PLAIN]
    with ExitStack() as stack:
        pipes = []
        for name in names:
            on_part(f"starting {name}")
            pipes.append(stack.enter_context(_contestant(name, config, made_up, repeats)))
        facts, *_ = [pipe.recv_or_fail() for pipe in pipes]
        seconds: list[list[float]] = [[] for _ in names]
        memory = [0.0 for _ in names]
        for number in range(repeats + WARM_UP):
            on_part(f"round {number + 1} of {repeats + WARM_UP}")
            for index, pipe in enumerate(pipes):
                pipe.send("round")
                took, held = pipe.recv_or_fail()
                seconds[index].append(took)
                memory[index] = max(memory[index], held)
    own = [Contestant(name, took[WARM_UP:], held) for name, took, held in zip(names, seconds, memory, strict=True)]
    return Cost(**facts, contestants=own)


class _Pipe:
    """The way to a contestant."""

    def __init__(self, name: str, pipe: Connection) -> None:
        self._name = name
        self._pipe = pipe

    def send(self, what: str) -> None:
        self._pipe.send(what)

    def recv_or_fail(self) -> Any:
        try:
            told = self._pipe.recv()
        except EOFError as error:
            raise FedpuError(
                f"The measurement of {self._name} ended before its time; see the message above."
            ) from error
        if isinstance(told, FedpuError):
            raise told
        return told


@contextmanager
def _contestant(name: str, config: Config, made_up: MadeUp | None, repeats: int) -> Iterator[_Pipe]:
    """Start a contestant in a process of its own, so that one does not warm up memory for the next."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(name, config.to_toml(), made_up, repeats, theirs))
    process.start()
    theirs.close()
    try:
        yield _Pipe(name, ours)
    finally:
        ours.close()
        process.join(ENDING)
        if process.is_alive():
            process.kill()


def _serve(name: str, config_text: str, made_up: MadeUp | None, repeats: int, pipe: Connection) -> None:
    """Measure, and hand a user's mistake back as the error that it is."""
    try:
        _measure(name, Config.from_dict(tomllib.loads(config_text)), made_up, repeats, pipe)
    except FedpuError as error:
        pipe.send(error)


def _measure(name: str, config: Config, made_up: MadeUp | None, repeats: int, pipe: Connection) -> None:
    """Say what is measured, then run a round whenever one is asked for, until the other side ends."""
    if name != OURS:
        config = config.with_(f"method.name={UPPER}")
    prepared = prepare(config, None if made_up is None else made_up.dataset())
    run = _plain if name == PLAIN else _ours
    with run(config, job_of(config, prepared.federation), repeats + WARM_UP) as one_round:
        pipe.send(_facts(config, prepared) if name == OURS else None)
        while _is_asked(pipe):
            started = time.perf_counter()
            one_round()
            pipe.send((time.perf_counter() - started, memory_of_all_processes()))


def _is_asked(pipe: Connection) -> bool:
    """Wait for the next question; say no where the other side has ended."""
    try:
        pipe.recv()
    except (EOFError, ConnectionError):
        return False
    return True


@contextmanager
def _ours(config: Config, job: Job, count: int) -> Iterator[Callable[[], None]]:
    aggregation = config.aggregation.model_copy(update={"rounds": count})
    with config.engine.start(job) as running:
        network, classes = job.initial_model(), len(job.federation.classes)
        guard = guard_of(config, network, len(job.federation), classes)
        clients = ProtectedClients(running, guard) if guard else running
        serving = serving_of(config, network, tuple(job.federation.inputs.shape[1:]))
        state = first_state(config, network, len(job.federation), classes)
        going = rounds(clients, aggregation, state, config.seed, guard.select if guard else None, serving)

        def one_round() -> None:
            next(going)

        yield one_round


@contextmanager
def _plain(config: Config, job: Job, count: int) -> Iterator[Callable[[], None]]:
    aggregation, number = config.aggregation, iter(range(count))
    assert isinstance(config.engine, MachineEngine)
    with plain_rounds(job, config.engine.worker_count(job)) as plain:

        def one_round() -> None:
            plain.run(_work(aggregation, config.seed, next(number), len(job.federation)))

        yield one_round


def _work(aggregation: Aggregation, seed: int, number: int, clients: int) -> list[Any]:
    return aggregation.work(seed, number, aggregation.select(seed, number, clients))


def _facts(config: Config, prepared: Prepared) -> dict[str, Any]:
    """Return what a run of the configuration consists of."""
    job = job_of(config, prepared.federation)
    network, sizes = job.initial_model(), job.federation.sizes
    work = _work(config.aggregation, config.seed, 0, len(sizes))
    seconds = 0.0
    if prepared.test_set is not None:
        for _ in range(2):  # the first one warms up
            started = time.perf_counter()
            evaluate(network, prepared.test_set, len(job.federation.classes), config.engine.compute_device())
            seconds = time.perf_counter() - started
    every, count = config.evaluation.every, config.aggregation.rounds
    engine = config.engine
    return {
        "model": config.model.model_dump()["name"],
        "shape": tuple(job.federation.inputs.shape[1:]),
        "clients": len(sizes),
        "examples": sum(int(sizes[one.client]) * one.epochs for one in work),
        "parameters": sum(p.numel() for p in network.parameters()),
        "workers": engine.worker_count(job) if isinstance(engine, MachineEngine) else 0,
        "rounds": count,
        "evaluations": count // every + bool(count % every) if prepared.test_set is not None else 0,
        "evaluation_seconds": seconds,
        "method": config.method.model_dump()["name"],
        "slow_because": engine.slow_because(job),
    }
