"""From a configuration to a result: the whole line, end to end."""

from __future__ import annotations

import platform
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.aggregation import Aggregation, ServerState, plateau_scale
from fedpu.algorithm import Round, Serving, rounds
from fedpu.applications.memory import memory_of_all_processes
from fedpu.applications.progress import round_bar
from fedpu.applications.trained import Names, Probabilities, TrainedModel
from fedpu.config import Config
from fedpu.data import FROM_PYTHON, Dataset, Encoding, dtype_name, load
from fedpu.engine import Clients, ClientStates, Engine, Job, predict, trained_parameters
from fedpu.engine.client import PRIORS_STATE
from fedpu.errors import ConfigError, DataError, EstimationError, FedpuError, TrainingError
from fedpu.evaluation import Metrics, estimates, evaluate, measure
from fedpu.faults import FaultyClients, mislabelled
from fedpu.labelling import (
    Federation,
    HiddenTruth,
    TestSet,
    draw_held_out,
    holdings,
    label,
    label_everything,
    split,
    without_priors,
)
from fedpu.partition import Partition
from fedpu.priors import guessing_warning, set_priors
from fedpu.priors.running import PRIORS, priors_report
from fedpu.privacy import Guard, ProtectedClients, guard_for
from fedpu.randomness import torch_generator
from fedpu.record import ModelCard, RunDirectory
from fedpu.round import Tensors, under
from fedpu.validation import HeldOut, Validation, tallies, validation_of

MOST_CLIENTS_TOLD = 100
"""clients up to which a record has a value for each of them"""

VALIDATION = ("validation", "validation_temperature", "validation_as_trained", "validation_accuracy")
"""names in the record, where clients hold data out: the score without hidden labels, at which temperature, and at
temperature 1; accuracy on labels alone
"""

VALIDATION_SET = "validation_set"
"""name in the record of accuracy and loss on the server's own validation data"""

NEGATIVES = "co_negatives"
"""name of the sum of negative classes in the server's state"""

RoundLine = dict[str, Any]
OnRound = Callable[[RoundLine], None]
OnNote = Callable[[str], None]
"""is told in a sentence what is worth knowing of a run before its first round"""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Data, handed out and labelled: what training may see, and what only evaluation may see."""

    name: str
    partition: Partition
    federation: Federation
    test_set: TestSet | None
    """None: the data have none, and nothing is measured"""
    hidden: HiddenTruth
    true_priors: Float[Tensor, "K C"] | None = None
    """the class shares of every client, where all classes are known; what estimates are measured against"""
    held_out: HeldOut | None = None
    """what clients hold out of training, with evaluation.validation"""
    validation_set: TestSet | None = None
    """what the server has for validation, with data.pooled"""
    whole: tuple[Federation, HiddenTruth] | None = None
    """the federation before anything was held out of it, which the record describes"""
    encoding: Encoding | None = None
    """how the columns of a table became the inputs"""
    measured_on: dict[str, Any] | None = None
    """on what the model is measured, in words; None: on nothing"""

    @property
    def recorded(self) -> tuple[Federation, HiddenTruth]:
        """All data as they were labelled."""
        return self.whole or (self.federation, self.hidden)

    @property
    def card(self) -> ModelCard:
        """What a model trained on it needs to be used elsewhere."""
        fed = self.federation
        shape = tuple(fed.inputs.shape[1:])
        return ModelCard(shape, dtype_name(fed.inputs), fed.classes, fed.normalisation, self.encoding)

    @property
    def server_side(self) -> ServerSide:
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
        if len(fed) <= MOST_CLIENTS_TOLD:
            facts["holdings"] = holdings(*self.recorded).to_dict()
        if self.held_out is not None:
            facts["held_out"] = len(self.held_out)
        if self.encoding is not None:
            facts["columns"] = self.encoding.to_dict()
        return ServerSide(
            self.card,
            len(fed),
            self.test_set,
            facts,
            self.true_priors,
            fed.priors,
            self.held_out,
            self.validation_set,
            self.measured_on,
            fed if self.measured_on is not None and not self.measured_on["is_accuracy"] else None,
        )


@dataclass(frozen=True, eq=False)
class ServerSide:
    """What the server of a run knows besides how to reach its clients.

    On real nodes that is no example and no label of theirs; what a simulation has besides is said to be of one.
    """

    card: ModelCard
    population: int
    test_set: TestSet | None
    """what the global model is measured on; None: nobody measures"""
    facts: dict[str, Any]
    """what is said of data and clients in ``result.json``"""
    true_priors: Float[Tensor, "K C"] | None = None
    """what estimated priors are measured against, in a simulation"""
    first_priors: Float[Tensor, "K C"] | None = None
    """what clients that estimate their priors begin with"""
    held_out: HeldOut | None = None
    """in a simulation: what clients hold out of training, and the model is scored on"""
    validation_set: TestSet | None = None
    """examples with classes that nobody trains on, which the schedule of the learning rate may follow"""
    measured_on: dict[str, Any] | None = None
    """what the test set is, in words"""
    estimated_on: Federation | None = None
    """in a simulation without a fully labelled test set: all data, from which estimates are made in its place"""


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a run: ``curve`` has one line per round, as ``rounds.jsonl``; ``summary`` is ``result.json``."""

    config: Config
    model: nn.Module
    summary: dict[str, Any]
    curve: list[RoundLine]
    card: ModelCard

    @property
    def accuracy(self) -> float:
        """Test accuracy of the final model, between 0 and 1; ``summary["measured_on"]`` says on what."""
        if self.summary["accuracy"] is None:
            raise FedpuError("The accuracy of this run is not known: there was no test set to measure it on.")
        return float(self.summary["accuracy"])

    @property
    def trained(self) -> TrainedModel:
        """The final model with all that it needs to be used on new data."""
        return TrainedModel(self.model, self.card, self.config.model, self.config.engine.compute_device())

    def predict(self, x: Any) -> Names:
        """Return the name of the most probable class of each example, in any form that data come in."""
        return self.trained.predict(x)

    def predict_proba(self, x: Any) -> Probabilities:
        """Return the probability of every class for each example, in the order of ``result.card.classes``."""
        return self.trained.predict_proba(x)


def prepare(config: Config, data: Dataset | None = None, partition: Partition | None = None) -> Prepared:
    """Load, partition and label the data as the configuration says; a data set or a partition at hand is used
    instead.
    """
    data = data or load(config.data)
    partition = partition or config.partition.split(data, config.seed)
    if config.method.fully_labelled:
        federation, hidden = label_everything(data, partition, config.seed)
    else:
        federation, hidden = label(data, partition, config.labelling, config.seed)
    true_priors = federation.priors
    whole, held_out = None, None
    if config.evaluation.validation:
        whole = (federation, hidden)
        federation, hidden, held_out = _hold_out(config, federation, hidden)
    # A method that needs no priors is not handed the true ones either: they tell of hidden labels.
    federation = set_priors(federation, config.priors) if config.method.needs_priors else without_priors(federation)
    return Prepared(
        data.name,
        partition,
        federation,
        TestSet.of(data),
        hidden,
        true_priors,
        held_out,
        whole=whole,
        validation_set=TestSet.of_validation(data),
        encoding=data.encoding,
        measured_on=describe_test(data),
    )


def describe_test(data: Dataset) -> dict[str, Any] | None:
    """Return what a model of these data is measured on, and whether that is an accuracy; None where on nothing."""
    if not len(data.test_labels):
        return None
    examples = len(data.test_labels)
    if data.test_origin == "given":
        return {"set": "test set", "examples": examples, "is_accuracy": True, "note": "the test set of the data"}
    if not bool((data.labels < 0).any()):
        note = "examples of every class that were set aside from the data, all of which are labelled"
        return {"set": "set aside", "examples": examples, "is_accuracy": True, "note": note}
    note = (
        "labelled examples that were set aside. The data are only partly labelled: nobody knows the classes of the "
        "rest, and labelled examples may have other class shares and be easier. Read the estimates, or give a fully "
        "labelled test set."
    )
    return {"set": "labelled examples set aside", "examples": examples, "is_accuracy": False, "note": note}


def _hold_out(config: Config, federation: Federation, hidden: HiddenTruth) -> tuple[Federation, HiddenTruth, HeldOut]:
    """Return what training may see, and what clients hold out, with what they know of all of their data."""
    if config.privacy.differential != "off":
        raise ConfigError(
            "evaluation.validation publishes a number made of clients' own data after every round, which the ε of "
            "[privacy] does not count. Choose settings without differential privacy, or set evaluation.validation = 0."
        )
    drawn = draw_held_out(federation, config.evaluation.validation, config.seed)
    if not bool(drawn.any()):
        raise ConfigError(
            f"evaluation.validation = {config.evaluation.validation} holds out not a single example: clients have too "
            "few. Raise it, or set it to 0."
        )
    known = federation if config.method.fully_labelled else set_priors(federation, config.priors)
    rest, truth, held_out = split(federation, hidden, drawn)
    return rest, truth, HeldOut(held_out, known.summary(torch.arange(len(known))), federation.sizes)


def run(
    config: Config,
    *,
    data: Dataset | None = None,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
    on_note: OnNote | None = None,
    progress: bool = False,
) -> Result:
    """Train as configured; with ``out``, record the run in that directory. ``data`` replaces the configured data
    set. ``progress`` shows a bar, in a notebook as in a terminal.
    """
    if out is not None:
        RunDirectory.refuse_taken(Path(out))
    if data is not None:
        described = config.data.model_copy(update={"name": f"{FROM_PYTHON}{data.name}"})
        config = config.model_copy(update={"data": described})
    prepared = prepare(config, data)
    with round_bar(config.method.name, config.aggregation.rounds, progress) as bar:
        return run_prepared(config, prepared, out, _both(bar, on_round), on_note)


def _both(first: OnRound, second: OnRound | None) -> OnRound:
    def on_round(line: RoundLine) -> None:
        first(line)
        if second is not None:
            second(line)

    return on_round


def run_prepared(
    config: Config,
    prepared: Prepared,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
    on_note: OnNote | None = None,
) -> Result:
    """Train on data that are prepared already. A run that fails before its first round is over leaves nothing."""
    ready = make_ready(config, prepared)
    if out is None:
        if config.record.trackers:
            raise ConfigError("record.trackers needs a run directory to write beside: give out=…, or set it to [].")
        return _train(config, prepared, ready, None, on_round, on_note)
    config.record.check()
    directory = RunDirectory.create(Path(out), config, prepared.partition, *prepared.recorded)
    try:
        with directory.locked():
            return _train(config, prepared, ready, directory, on_round, on_note)
    except (ConfigError, DataError, EstimationError, TrainingError):  # not a full disk, after which one resumes
        directory.discard()
        raise


def resume(
    path: str | Path,
    *,
    data: Dataset | None = None,
    engine: Engine | None = None,
    on_round: OnRound | None = None,
    on_note: OnNote | None = None,
) -> Result:
    """Go on with a recorded run after its last finished round, to the same result as if it had never stopped.

    ``engine`` replaces the recorded one, for example with another number of workers; the result is the same.
    """
    with RunDirectory.open(Path(path), check=False).locked() as directory:
        config = directory.config()
        if engine is not None:
            config = config.model_copy(update={"engine": engine})
        prepared = prepare(config, data, directory.partition())
        directory.check_data(*prepared.recorded)
        return _train(config, prepared, make_ready(config, prepared), directory, on_round, on_note)


class Outcome(NamedTuple):
    """What a finished run leaves: ``result.json``, and its rounds."""

    summary: dict[str, Any]
    curve: list[RoundLine]

    @property
    def accuracies(self) -> list[tuple[int, float]]:
        """The rounds that were measured, with their test accuracy."""
        return [(line["round"], line["accuracy"]) for line in self.curve if "accuracy" in line]

    @property
    def validations(self) -> list[tuple[int, float]]:
        """The rounds that were measured, with the score on what clients hold out; none where they hold nothing out."""
        return [(line["round"], line["validation"]) for line in self.curve if "validation" in line]


def run_or_resume(
    config: Config,
    out: Path | None,
    *,
    data: Dataset | None = None,
    engine: Engine | None = None,
    on_round: OnRound | None = None,
    on_note: OnNote | None = None,
) -> Outcome:
    """Return the outcome of a run in ``out``: of a finished one as it is there, else after going on with it, or after
    starting it. ``engine`` replaces the configured one, which changes nothing of the result.
    """
    if out is None or not RunDirectory(out).config_file.exists():
        started = config if engine is None else config.model_copy(update={"engine": engine})
        result = run_prepared(started, prepare(config, data), out, on_round, on_note)
        return Outcome(result.summary, result.curve)
    directory = RunDirectory.open(out)
    if not directory.config().gives_same_as(config):
        raise FedpuError(f"'{out}' holds a run with other settings. Delete it, or choose another --out.")
    summary = directory.result()
    if summary is not None:
        return Outcome(summary, directory.rounds())
    result = resume(out, data=data, engine=engine, on_round=on_round, on_note=on_note)
    return Outcome(result.summary, result.curve)


class Ready(NamedTuple):
    """What a run starts with, checked."""

    job: Job
    network: nn.Module
    guard: Guard | None
    state: ServerState


def make_ready(config: Config, prepared: Prepared) -> Ready:
    """Make and check all that a run starts with, before anything is written or trained."""
    federation = mislabelled(prepared.federation, config.faults, config.seed)
    job = job_of(config, federation)
    network = job.initial_model()
    if config.faults.nan and config.privacy.on:
        raise ConfigError(
            "faults.nan can't be played with [privacy] on, where the server sees no single update and could not tell "
            "who is to be left out. Set faults.nan = 0, or turn [privacy] off."
        )
    guard = guard_of(config, network, len(federation), len(federation.classes))
    _check_outputs(network, prepared)
    return Ready(job, network, guard, first_state(config, network, len(federation), len(federation.classes)))


def _train(
    config: Config,
    prepared: Prepared,
    ready: Ready,
    directory: RunDirectory | None,
    on_round: OnRound | None,
    on_note: OnNote | None,
) -> Result:
    faulty = config.faults.drawn(config.seed, len(prepared.federation))
    job, network, guard, state = ready
    federation = job.federation
    if directory:
        state = directory.resume_state(state, network)
    if guard and guard.lends and not state.once:
        sizes = federation.sizes if config.method.lends_by_size else None
        state = replace(state, once={NEGATIVES: guard.co_negatives(federation.positive, sizes)})
    job = replace(job, negatives=state.once.get(NEGATIVES))
    slow = config.engine.slow_because(job) if on_note else None
    if on_note and slow:
        on_note(f"Clients are trained one after another, which is slower and gives the same model: {slow}.")
    known = prepared.server_side
    guessing = guessing_warning(federation, config.priors) if config.method.needs_priors else None
    if guessing:
        known = replace(known, facts=known.facts | {"warnings": [guessing]})
        if on_note:
            on_note(guessing)
    if faulty:
        named = config.faults.named(config.seed, len(federation))
        known = replace(known, facts=known.facts | {"faults": named})
    with config.engine.start(job) as clients:
        if faulty:
            first = ServerState.initial(job.initial_model(), len(federation), config.aggregation, {}).model
            clients = FaultyClients(clients, config.faults, faulty, first, config.seed)
        if guard:
            clients = ProtectedClients(clients, guard)
        return train(config, known, network, state, clients, guard, directory, on_round)


def job_of(config: Config, federation: Federation) -> Job:
    """Return what the updates of a federation's clients depend on."""
    config.augmentation.check(tuple(federation.inputs.shape[1:]))
    _check_tokens(config, federation.inputs)
    return Job(
        federation=federation,
        method=config.method,
        model=config.model,
        seed=config.seed,
        priors=config.priors,
        rule=config.aggregation,
        augmentation=config.augmentation,
    )


def _check_tokens(config: Config, inputs: Tensor) -> None:
    """Refuse token ids where amounts are needed, and amounts where token ids are."""
    takes, name = config.model.takes_tokens, config.model.model_dump()["name"]
    if inputs.dtype != torch.int64:
        if takes:
            raise ConfigError(
                f"model.name = '{name}' takes token ids, and these inputs are amounts. If they are token ids, set "
                "data.tokens = true; else choose model.name = 'mlp'."
            )
        return
    if takes is False:
        raise ConfigError(
            f"The inputs are token ids, and model.name = '{name}' takes amounts. Set model.name = 'text'."
        )
    largest, known = int(inputs.max()), config.model.largest_token()
    if known is not None and largest > known:
        raise ConfigError(
            f"The inputs have the token id {largest}, and the model knows ids up to {known}. Set model.vocabulary to "
            f"{largest + 1} or more."
        )
    if config.augmentation.weak or config.augmentation.strong:
        raise ConfigError("The inputs are token ids, which no transform of [augmentation] can change. Remove them.")
    if config.method.needs_priors and config.priors.source == "estimated" and not config.priors.looks_at_model:
        raise ConfigError(
            f"priors.estimator = '{config.priors.estimator}' looks at examples as vectors, and these are token "
            'ids. Set priors.features = "model", or choose another estimator.'
        )


def first_state(config: Config, network: nn.Module, clients: int, classes: int) -> ServerState:
    """Return the server's state before the first round."""
    shared = config.method.first_shared(classes, trained_parameters(network))
    return ServerState.initial(network, clients, config.aggregation, shared)


def serving_of(config: Config, network: nn.Module, shape: tuple[int, ...]) -> Serving | None:
    """Return what the method does on the server of a run; nothing, for most methods."""
    if not config.method.serves:
        return None
    noise = torch.randn(1, *shape, generator=torch_generator(config.seed, "noise image"))
    own = deepcopy(network).eval()

    @torch.no_grad()
    def on_noise(model: Tensors) -> Float[Tensor, "1 C"]:
        own.load_state_dict(model)
        logits: Tensor = own(noise)
        return logits

    return Serving(config.method, on_noise)


def train(
    config: Config,
    known: ServerSide,
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
        clients.restore(directory.client_states())
    if directory and guard:
        guard.keep_journal(directory.releases)
    device = config.engine.compute_device()
    select = guard.select if guard else None
    serving = serving_of(config, network, known.card.shape)
    lr_scale = partial(_lr_scale, config.aggregation, known, curve)
    with config.record.tracking(directory.path if directory else None, config.to_dict(), len(curve)) as tracked:
        for done in rounds(clients, config.aggregation, state, config.seed, select, serving, lr_scale):
            state = done.state
            metrics, validation, measured = None, None, None
            due = done.number % config.evaluation.every == 0 or done.number == config.aggregation.rounds
            if due and known.test_set is not None:
                network.load_state_dict(state.model)
                metrics = evaluate(network, known.test_set, len(known.card.classes), device)
            if due and known.validation_set is not None:
                network.load_state_dict(state.model)
                measured = evaluate(network, known.validation_set, len(known.card.classes), device)
            states = clients.states()
            if due and known.held_out is not None:
                network.load_state_dict(state.model)
                own = {k: found[PRIORS] for k, found in _estimated_priors(states).items()}
                validation = validation_of(tallies(network, known.held_out, device, own))
            line = (
                _line(done, metrics, validation, guard, known.measured_on)
                | ({VALIDATION_SET: {"accuracy": measured.accuracy, "loss": measured.loss}} if measured else {})
                | config.aggregation.report(state)
                | config.method.report(state.memory)
                | _priors_line(states, done, known)
            )
            curve.append(line)
            if directory:
                directory.add_round(line, state, known.card, states)
            tracked.log(line)
            if on_round:
                on_round(line)
    network.load_state_dict(state.model)
    summary = directory.result() if directory else None
    if summary is None:
        summary = _summary(config, known, curve, guard) | _measured(config, known, network, clients.states())
        if directory:
            directory.finish(state, known.card, summary)
    return Result(config, network, summary, curve, known.card)


def _measured(config: Config, known: ServerSide, network: nn.Module, states: ClientStates) -> dict[str, Any]:
    """Return all that is measured of the final model, and on what."""
    told: dict[str, Any] = {"measured_on": known.measured_on}
    if known.test_set is None:
        return told
    device = config.engine.compute_device()
    logits = predict(network, known.test_set.inputs, known.test_set.normalisation, device)
    if not bool(torch.isfinite(logits).all()):
        return told
    measures = measure(logits, known.test_set.labels, known.card.classes)
    told["measures"] = asdict(measures)
    everything = known.estimated_on
    if everything is None or config.privacy.differential != "off":  # more of clients' data, which no ε counts
        return told
    priors = None
    if known.first_priors is not None:
        own = known.first_priors.double().clone()
        for k, found in _estimated_priors(states).items():
            own[k] = found[PRIORS].double()
        priors = (everything.sizes.double() / everything.sizes.sum()) @ own
    outputs = predict(network, everything.inputs, everything.normalisation, device)
    shares = torch.bincount(outputs.argmax(dim=1), minlength=len(known.card.classes)).double() / len(outputs)
    return told | {"estimates": estimates(measures, priors, shares, config.priors.source)}


def _lr_scale(aggregation: Aggregation, known: ServerSide, curve: list[RoundLine]) -> float:
    """Return what the learning rate is multiplied by after the rounds so far. Only the record is looked at, so that a
    run that was stopped goes on as it would have.
    """
    if not aggregation.lr_patience:
        return 1.0
    if known.validation_set is not None:
        losses = [line[VALIDATION_SET]["loss"] for line in curve if VALIDATION_SET in line]
    elif known.held_out is not None:
        losses = [line["validation"] for line in curve if "validation" in line]
    else:
        raise ConfigError(
            "aggregation.lr_patience follows validation data, and there are none: set data.pooled or "
            "evaluation.validation, or set it to 0."
        )
    return plateau_scale(losses, aggregation.lr_patience, aggregation.lr_factor)


def guard_of(config: Config, network: nn.Module, clients: int, classes: int) -> Guard | None:
    """Return what keeps the updates of a run private, or None where nothing is asked for."""
    return guard_for(config.privacy, network, config.aggregation, config.method, clients, classes, config.seed)


def _check_outputs(network: nn.Module, prepared: Prepared) -> None:
    """Refuse a network that does not turn inputs into one number per class, before any work is done."""
    wanted = (2, len(prepared.federation.classes))
    two = prepared.federation.inputs[:1].expand(2, *prepared.federation.inputs.shape[1:])
    try:
        given = tuple(predict(network, two, prepared.federation.normalisation, torch.device("cpu")).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(f"The network can't take inputs of shape {tuple(two.shape[1:])}: {error}.") from error
    if given != wanted:
        raise ConfigError(f"The network turns 2 inputs into shape {given}; with these data it should be {wanted}.")


def _line(
    done: Round,
    metrics: Metrics | None,
    validation: Validation | None,
    guard: Guard | None,
    measured_on: dict[str, Any] | None,
) -> RoundLine:
    line: RoundLine = {"round": done.number}
    if metrics:
        line |= asdict(metrics)
        if measured_on is not None and not measured_on["is_accuracy"]:
            line["measured_on"] = measured_on["set"]
    if validation:
        line |= validation.to_dict()
    spent = guard.spent(done.number) if guard else None
    if spent:
        line |= asdict(spent)
    line |= {
        "risk": done.terms,
        "clients": done.clients,
        "lr": done.lr,
        "bytes": asdict(done.traffic),
        "seconds": round(done.seconds, 4),
    }
    judged = {"left_out": done.left_out, "cut": done.cut}
    return line | {name: told for name, told in judged.items() if told}


def _priors_line(states: ClientStates, done: Round, known: ServerSide) -> RoundLine:
    """Return what the record says of priors that clients of this machine have estimated in a round."""
    own = _estimated_priors(states)
    if not own or known.first_priors is None:
        return {}
    return priors_report(own, known.first_priors, done.number, known.true_priors)


def _estimated_priors(states: ClientStates) -> dict[int, Tensors]:
    """Return what clients of this machine keep of the priors that they estimate."""
    return {k: found for k, state in states.items() if (found := under(PRIORS_STATE, state))}


def _summary(config: Config, known: ServerSide, curve: list[RoundLine], guard: Guard | None) -> dict[str, Any]:
    last = curve[-1]
    spent = {name: last[name] for name in ("epsilon", "delta") if name in last}
    return {
        "method": config.method.model_dump()["name"],
        "accuracy": last.get("accuracy"),
        "rounds": last["round"],
        "seed": config.seed,
        "loss": last.get("loss"),
        "per_class_accuracy": last.get("per_class_accuracy"),
        **{name: last[name] for name in VALIDATION if name in last},
        **(spent | {"privacy": guard.meaning} if guard and spent else {}),
        **known.facts,
        **_true_priors(known, curve),
        "memory_mb": _memory(),
        "seconds": round(sum(line["seconds"] for line in curve), 2),
        "versions": {
            "fedpu": version("fedpu"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _true_priors(known: ServerSide, curve: list[RoundLine]) -> dict[str, Any]:
    """Return what priors that were estimated are measured against, where evaluation knows it and it is not too long."""
    told = any("values" in line.get("priors", {}) for line in curve)
    if not told or known.true_priors is None:
        return {}
    return {"true_priors": [[round(value, 5) for value in row] for row in known.true_priors.tolist()]}


def _memory() -> float | None:
    """Return the megabytes of all processes of the run at its end; nothing where the system does not tell."""
    try:
        return round(memory_of_all_processes(), 1)
    except (OSError, ImportError):  # a worker has just ended, or the system has no such numbers
        return None
