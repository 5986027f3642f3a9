"""What is trained: all that a run starts with, checked, and its rounds, with clients wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from fedpu.aggregation import Aggregation, ServerState, plateau_scale
from fedpu.algorithm import Serving, rounds
from fedpu.applications.prepared import Prepared, ServerSide
from fedpu.applications.recording import VALIDATION_SET, RoundLine, line_of, summary_of
from fedpu.applications.trained import Names, Probabilities, TrainedModel
from fedpu.config import Config
from fedpu.engine import Clients, Job, predict, trained_parameters
from fedpu.errors import ConfigError, FedpuError
from fedpu.faults import mislabelled
from fedpu.labelling import Federation
from fedpu.privacy import Guard, guard_for
from fedpu.randomness import torch_generator
from fedpu.record import ModelCard, RunDirectory
from fedpu.round import Tensors

OnRound = Callable[[RoundLine], None]


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
    select = guard.select if guard else None
    serving = serving_of(config, network, known.card.shape)
    lr_scale = partial(_lr_scale, config.aggregation, known, curve)
    with config.record.tracking(directory.path if directory else None, config.to_dict(), len(curve)) as tracked:
        for done in rounds(clients, config.aggregation, state, config.seed, select, serving, lr_scale):
            state, states = done.state, clients.states()
            line = line_of(done, config, known, network, states, guard)
            curve.append(line)
            if directory:
                directory.add_round(line, state, known.card, states)
            tracked.log(line)
            if on_round:
                on_round(line)
    network.load_state_dict(state.model)
    summary = directory.result() if directory else None
    if summary is None:
        summary = summary_of(config, known, curve, guard, network, clients.states())
        if directory:
            directory.finish(state, known.card, summary)
    return Result(config, network, summary, curve, known.card)


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
