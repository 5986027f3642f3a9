"""From a configuration to a result: the whole line, end to end."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.aggregation import ServerState
from fedpu.algorithm import Round, rounds
from fedpu.config import Config
from fedpu.data import FROM_PYTHON, Dataset, load
from fedpu.engine import Clients, Engine, Job, ModelState
from fedpu.errors import ConfigError
from fedpu.evaluation import Metrics, evaluate, predict
from fedpu.labelling import Evaluation, Federation, label, label_everything
from fedpu.partition import Partition
from fedpu.priors import set_priors
from fedpu.privacy import Guard, guard_for
from fedpu.record import ModelCard, RunDirectory

MOST_CLIENTS_TOLD = 100
"""clients up to which a record has a value for each of them"""

RoundLine = dict[str, Any]
OnRound = Callable[[RoundLine], None]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Data, handed out and labelled: what training may see, and what only evaluation may see."""

    name: str
    partition: Partition
    federation: Federation
    evaluation: Evaluation
    true_priors: Float[Tensor, "K C"] | None = None
    """the class shares of every client, where all classes are known; what estimates are measured against"""

    @property
    def card(self) -> ModelCard:
        """What a model trained on it needs to be used elsewhere."""
        fed = self.federation
        dtype = str(fed.inputs.dtype).removeprefix("torch.")
        return ModelCard(tuple(fed.inputs.shape[1:]), dtype, fed.classes, fed.normalisation)

    @property
    def course(self) -> Course:
        """What the server of a run on it knows."""
        fed = self.federation
        facts = {
            "data": self.name,
            "clients": len(fed),
            "examples": int(fed.sizes.sum()),
            "labelled": int((fed.labels >= 0).sum()),
            "positive": [torch.nonzero(row)[:, 0].tolist() for row in fed.positive]
            if len(fed) <= MOST_CLIENTS_TOLD
            else None,
        }
        return Course(self.card, len(fed), self.evaluation, facts, self.true_priors)


@dataclass(frozen=True, eq=False)
class Course:
    """What the server of a run knows besides how to reach its clients: no example and no label of theirs."""

    card: ModelCard
    population: int
    evaluation: Evaluation | None
    """what the global model is measured on; None: nobody measures"""
    facts: dict[str, Any]
    """what is said of data and clients in ``result.json``"""
    true_priors: Float[Tensor, "K C"] | None = None
    """what estimated priors are measured against, in a simulation"""


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a run. ``curve`` has a line a round, as in ``rounds.jsonl``; ``summary`` is ``result.json``."""

    config: Config
    model: nn.Module
    summary: dict[str, Any]
    curve: list[RoundLine]

    @property
    def accuracy(self) -> float:
        """Test accuracy of the final model, between 0 and 1."""
        return float(self.summary["accuracy"])


def prepare(config: Config, data: Dataset | None = None, partition: Partition | None = None) -> Prepared:
    """Load, partition and label the data as the configuration says; a data set or a partition at hand is used
    instead.
    """
    data = data or load(config.data)
    partition = partition or config.partition.split(data, config.seed)
    if config.method.fully_labelled:
        federation, evaluation = label_everything(data, partition, config.seed)
    else:
        federation, evaluation = label(data, partition, config.labelling, config.seed)
    true_priors = federation.priors
    if config.method.uses_unlabelled:
        federation = set_priors(federation, config.priors)
    return Prepared(data.name, partition, federation, evaluation, true_priors)


def run(
    config: Config,
    *,
    data: Dataset | None = None,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
) -> Result:
    """Train as configured; with ``out``, record the run in that directory. ``data`` replaces the configured data
    set.
    """
    if data is not None:
        described = config.data.model_copy(update={"name": f"{FROM_PYTHON}{data.name}"})
        config = config.model_copy(update={"data": described})
    return run_prepared(config, prepare(config, data), out, on_round)


def run_prepared(
    config: Config, prepared: Prepared, out: str | Path | None = None, on_round: OnRound | None = None
) -> Result:
    """Train on data that are prepared already."""
    directory = None
    if out is not None:
        directory = RunDirectory.create(Path(out), config, prepared.partition, prepared.federation, prepared.evaluation)
    return _train(config, prepared, directory, on_round)


def resume(
    path: str | Path,
    *,
    data: Dataset | None = None,
    engine: Engine | None = None,
    on_round: OnRound | None = None,
) -> Result:
    """Go on with a recorded run after its last finished round, to the same result as if it had never stopped.

    ``engine`` replaces the recorded one, for example with another number of workers; the result is the same.
    """
    directory = RunDirectory.open(Path(path))
    config = directory.config()
    if engine is not None:
        config = config.model_copy(update={"engine": engine})
    prepared = prepare(config, data, directory.partition())
    directory.check_data(prepared.federation, prepared.evaluation)
    return _train(config, prepared, directory, on_round)


def _train(config: Config, prepared: Prepared, directory: RunDirectory | None, on_round: OnRound | None) -> Result:
    job = Job(prepared.federation, config.method, config.model, config.seed, config.priors)
    network = job.initial_model()
    guard = guard_of(config, network, len(prepared.federation))
    _check_outputs(network, prepared)
    state = directory.resume_state(network) if directory else ServerState.initial(network)
    if guard and state.co_negatives is None:
        state = replace(state, co_negatives=guard.co_negatives(prepared.federation.positive))
    job = replace(job, co_negatives=state.co_negatives)
    with config.engine.start(job) as clients:
        return train(config, prepared.course, network, state, clients, guard, directory, on_round)


def train(
    config: Config,
    course: Course,
    network: nn.Module,
    state: ServerState,
    clients: Clients,
    guard: Guard | None,
    directory: RunDirectory | None,
    on_round: OnRound | None,
) -> Result:
    """Run the rounds that are left after ``state`` with clients wherever they are; measure and record each."""
    curve = directory.rounds() if directory else []
    if directory:
        clients.restore(directory.kept())
    device = config.engine.compute_device()
    for done in rounds(clients, config.aggregation, state, course.population, config.seed, guard):
        state = done.state
        metrics = None
        due = done.number % config.evaluation.every == 0 or done.number == config.aggregation.rounds
        if due and course.evaluation is not None:
            network.load_state_dict(state.model)
            metrics = evaluate(network, course.evaluation, len(course.card.classes), device)
        kept = clients.kept()
        line = _line(done, metrics, guard) | _priors_line(kept, done.number, course)
        curve.append(line)
        if directory:
            directory.add_round(line, state, course.card, kept)
        if on_round:
            on_round(line)
    network.load_state_dict(state.model)
    summary = (directory.result() if directory else None) or _summary(config, course, curve, guard)
    if directory and directory.result() is None:
        directory.finish(state, course.card, summary)
    return Result(config, network, summary, curve)


def guard_of(config: Config, network: nn.Module, clients: int) -> Guard | None:
    """Return what keeps the updates of a run private, or None where nothing is asked for."""
    return guard_for(config.privacy, network, config.aggregation, clients, config.seed, config.method.lends)


def _check_outputs(network: nn.Module, prepared: Prepared) -> None:
    """Refuse a network that does not turn inputs into one number a class, before any work is done."""
    wanted = (2, len(prepared.federation.classes))
    two = prepared.federation.inputs[:1].expand(2, *prepared.federation.inputs.shape[1:])
    try:
        given = tuple(predict(network, two, prepared.federation.normalisation, torch.device("cpu")).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(f"The network can't take inputs of shape {tuple(two.shape[1:])}: {error}.") from error
    if given != wanted:
        raise ConfigError(f"The network turns 2 inputs into shape {given}; with these data it should be {wanted}.")


def _line(done: Round, metrics: Metrics | None, guard: Guard | None) -> RoundLine:
    line: RoundLine = {"round": done.number}
    if metrics:
        line |= asdict(metrics)
    spent = guard.spent(done.number) if guard else None
    if spent:
        line |= asdict(spent)
    line |= {
        "risk": done.terms,
        "clients": done.clients,
        "lr": done.lr,
        "seconds": round(done.seconds, 4),
    }
    return line | ({"left_out": done.left_out} if done.left_out else {})


def _priors_line(kept: ModelState, number: int, course: Course) -> RoundLine:
    """Return what is told of estimated priors in a round that brought new estimates."""
    if "priors" not in kept or not (kept["last"] == number - 1).any():
        return {}
    priors = kept["priors"]
    told: dict[str, Any] = {"estimated": int((kept["last"] == number - 1).sum())}
    if len(priors) <= MOST_CLIENTS_TOLD:
        told["values"] = [[round(value, 5) for value in row] for row in priors.tolist()]
    if course.true_priors is not None:
        told["mean_absolute_error"] = float((priors - course.true_priors).abs().mean())
    return {"priors": told}


def _summary(config: Config, course: Course, curve: list[RoundLine], guard: Guard | None) -> dict[str, Any]:
    last = curve[-1]
    spent = {name: last[name] for name in ("epsilon", "delta") if name in last}
    return {
        "method": config.method.model_dump()["name"],
        "accuracy": last.get("accuracy"),
        "rounds": last["round"],
        "seed": config.seed,
        "loss": last.get("loss"),
        "per_class_accuracy": last.get("per_class_accuracy"),
        **(spent | {"privacy": guard.meaning} if guard and spent else {}),
        **course.facts,
        "seconds": round(sum(line["seconds"] for line in curve), 2),
        "versions": {
            "fedpu": version("fedpu"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
