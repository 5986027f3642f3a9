"""ClientUpdate of Algorithm 1: what happens on a client in a round.

:func:`begin` and :func:`end` are what every engine does around a client's steps; :func:`update_client` is the readable
loop between them, which the fast engine is tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from fedpu.engine.base import Job, copy_state
from fedpu.engine.bfloat16 import Bfloat16Convolutions
from fedpu.engine.descent import start_descent
from fedpu.engine.pool import Piece, Trained, Trainer
from fedpu.engine.predict import client_outputs
from fedpu.engine.views import client_views
from fedpu.errors import TrainingError
from fedpu.labelling import Client
from fedpu.method import Batch, ClientRound, Preparation
from fedpu.priors.running import PRIORS, first_guess, refreshed
from fedpu.randomness import torch_generator, torch_seed
from fedpu.risk import RiskConstants
from fedpu.round import Broadcast, Correction, Descent, Tensors, Update, Work, prefixed, under

PRIORS_STATE, METHOD_STATE, RULE_STATE = "priors", "method", "aggregation"
"""whose part of a client's state it is"""


@dataclass(frozen=True, eq=False)
class Begun:
    """A client that is ready for its first step."""

    client: Client
    work: Work
    now: ClientRound
    preparation: Preparation
    correction: Correction
    model: Tensors
    """what it starts from"""
    parameters: Tensors
    """the part of it that is trained"""
    state: Tensors
    """the client's state so far, all parts of it"""

    @property
    def constants(self) -> RiskConstants:
        """The constants of its risk."""
        return self.now.constants

    @property
    def method_state(self) -> Tensors:
        """The method's part of the client's state, as it has prepared it."""
        return self.preparation.state or {}


class ClientTrainer(Trainer):
    """Runs ClientUpdate(k, w_t) with one network that is reused from client to client."""

    def __init__(self, job: Job, device: torch.device) -> None:
        self.job = job
        self.network = job.initial_model().to(device)
        self.negatives: Float[Tensor, "C C"] = job.co_negatives()

    def update(self, sent: Broadcast, piece: Piece) -> list[Trained]:
        """Train the clients of a piece of work one after another, each from what the server sent."""
        return [
            update_client(
                self.job,
                self.network,
                self.job.federation.client(work.client),
                sent,
                work,
                piece.states.get(work.client),
                self.negatives,
            )
            for work in piece.work
        ]


def update_client(
    job: Job,
    network: nn.Module,
    client: Client,
    sent: Broadcast,
    work: Work,
    state: Tensors | None,
    negatives: Float[Tensor, "C C"],
) -> Trained:
    """Run ClientUpdate(k, w_t): train ``network`` on one client's own data from what the server sent.

    ``state`` is what the client kept from its last update, None before its first; ``negatives`` is the one sum over
    clients.
    """
    device = next(network.parameters()).device
    begun = begin(job, network, client, sent, work, state, negatives)
    constants = type(begun.constants)(*(value.to(device) for value in begun.constants))
    network.load_state_dict(begun.model)
    network.train()
    descent = start_descent(job.method, network, sent, work, _corrector(network, begun.correction))
    sums: dict[str, Tensor] = {}
    seen = 0
    batches = draw_batches(job, client, work)
    # A network may draw random numbers of its own (dropout): those, too, depend on (seed, round, client) alone.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(torch_seed(job.seed, "network", work.round, work.client))
        for step, positions in enumerate(batches):
            batch = make_batch(job, begun, positions, step, device)
            for shown in descent.shown(batch):
                with Bfloat16Convolutions() if job.model.precision == "bfloat16" else nullcontext():
                    terms = job.method.objective(network, shown, constants)
                descent.step(shown, terms["total"])
                for name, term in terms.items():
                    sums[name] = sums.get(name, 0) + term.detach() * len(positions)
            seen += len(positions)
    parts = descent.end()
    model = copy_state(network)
    refuse_not_finite(model.values(), work)
    trained = {name: model[name] for name in begun.parameters}
    # Not the network as it is: the method may have asked for the outputs of the model that it started from in between.
    outputs = partial(_outputs_of(network, client), model)
    ended, kept = end(job, begun, sent, trained, descent.steps, outputs)
    update = Update(
        client=work.client,
        examples=len(client.inputs),
        model=model,
        terms={name: float(value) / seen for name, value in sums.items()},
        extras=ended.extras,
        shared=ended.shared | parts,
    )
    return Trained(update, {work.client: kept} if job.stateful else {})


@dataclass(frozen=True, eq=False)
class Ended:
    """What a client sends besides its model."""

    extras: Tensors
    shared: Tensors


def begin(
    job: Job,
    network: nn.Module,
    client: Client,
    sent: Broadcast,
    work: Work,
    state: Tensors | None,
    negatives: Float[Tensor, "C C"],
) -> Begun:
    """Bring a client's state and priors up to date with what the server sent, and let its method prepare the update."""
    trainable = [name for name, p in network.named_parameters() if p.requires_grad]
    parameters = {name: sent.model[name] for name in trainable}
    if state is None:
        state = first_state(job, client, parameters)
    outputs = _outputs_of(network, client)
    summary = client.summary
    if job.estimates_priors:
        seed = torch_seed(job.seed, "priors", work.round, work.client)
        received = partial(outputs, sent.model)
        known = refreshed(under(PRIORS_STATE, state), client, received, job.priors, work.round, seed)
        summary = summary._replace(priors=known[PRIORS].float())
        state = state | prefixed({PRIORS_STATE: known})
    constants = job.method.constants(summary, negatives, job.population)

    def now(model: Tensors) -> ClientRound:
        return ClientRound(
            client=client,
            constants=constants,
            round=work.round,
            state=under(METHOD_STATE, state),
            outputs=cache(partial(outputs, model)),
            generator=lambda purpose: torch_generator(job.seed, f"method {purpose}", work.round, work.client),
            shared=sent.shared,
            extras=work.extras,
            priors_of=job.priors_of,
            model=model,
            outputs_of=outputs,
        )

    def loss(model: Tensors) -> float:
        return _loss(job, network, client, model, now(model))

    model = job.rule.choose_model(sent, work, loss)
    chosen = now(model)
    preparation = job.method.prepare(chosen)
    if preparation.state is None:
        preparation = replace(preparation, state=chosen.state)
    return Begun(
        client=client,
        work=work,
        now=chosen,
        preparation=preparation,
        correction=job.rule.correction(sent, work, under(RULE_STATE, state)),
        model=model,
        parameters={name: model[name] for name in trainable},
        state=state,
    )


def end(
    job: Job,
    begun: Begun,
    sent: Broadcast,
    trained: Tensors,
    steps: int,
    outputs: Callable[[], Float[Tensor, "r C"]],
) -> tuple[Ended, Tensors]:
    """Return what a client sends besides its model, and the state that stays with it."""
    work = begun.work
    finished = job.method.finish(begun.now, begun.preparation, cache(outputs))
    descent = Descent(steps, work.lr, work.momentum)
    rule = job.rule.end_client(sent, work, under(RULE_STATE, begun.state), begun.parameters, trained, descent)
    kept = prefixed(
        {
            PRIORS_STATE: under(PRIORS_STATE, begun.state),
            METHOD_STATE: begun.method_state if finished.state is None else finished.state,
            RULE_STATE: rule.state,
        }
    )
    return Ended(rule.extras, finished.shared), {name: value.detach().cpu() for name, value in kept.items()}


def first_state(job: Job, client: Client, parameters: Tensors) -> Tensors:
    """Return the state of a client that takes part for the first time."""
    parts: dict[str, Tensors] = {}
    if job.estimates_priors:
        assert client.priors is not None
        parts[PRIORS_STATE] = first_guess(client.priors)
    return prefixed(parts | {METHOD_STATE: job.method.start(client), RULE_STATE: job.rule.start_client(parameters)})


def draw_batches(job: Job, client: Client, work: Work) -> list[Int64[Tensor, " _"]]:
    """Return the positions of every batch of an update, as the method draws them."""
    generator = partial(torch_generator, job.seed, "batches", work.round, work.client)
    return job.method.batches(client.labels, work, generator)


def make_batch(job: Job, begun: Begun, positions: Int64[Tensor, " n"], step: int, device: torch.device) -> Batch:
    """Return one step's examples, as the method asks for them."""
    inputs, labels = begun.client.batch(positions)
    work = begun.work
    return Batch(
        labels=labels.to(device),
        views=client_views(job, inputs.to(device), work.round, work.client, step),
        examples={name: value[positions].to(device) for name, value in begun.preparation.examples.items()},
        state=begun.method_state,
        round=work.round,
    )


def _outputs_of(network: nn.Module, client: Client) -> Callable[[Tensors], Float[Tensor, "r C"]]:
    """Return a function that gives a model's outputs on the client's data."""

    def outputs(model: Tensors) -> Float[Tensor, "r C"]:
        network.load_state_dict(model)
        return client_outputs(client, network)

    return outputs


@torch.no_grad()
def _loss(job: Job, network: nn.Module, client: Client, model: Tensors, now: ClientRound) -> float:
    """Return the method's loss of a model on all of a client's data, as they are."""
    prepared = job.method.prepare(now)
    positions = torch.arange(len(client.labels))
    if not job.method.uses_unlabelled:
        positions = (client.labels >= 0).nonzero()[:, 0]
    if not len(positions):
        return 0.0
    inputs, labels = client.batch(positions)
    network.load_state_dict(model)
    network.eval()
    device = next(network.parameters()).device
    batch = Batch(
        labels=labels.to(device),
        views=dict.fromkeys(job.method.views, inputs.to(device)),
        examples={name: value[positions].to(device) for name, value in prepared.examples.items()},
        state=now.state if prepared.state is None else prepared.state,
        round=now.round,
    )
    constants = type(now.constants)(*(value.to(device) for value in now.constants))
    return float(job.method.objective(network, batch, constants)["total"])


def _corrector(network: nn.Module, correction: Correction) -> Callable[[], None]:
    """Return what adds an aggregation's part to the gradients of all parameters."""
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    anchor = [p.detach().clone() for _, p in named] if correction.proximal else []
    offsets = {name: value.to(next(network.parameters()).device) for name, value in correction.offset.items()}

    def correct() -> None:
        for (_, parameter), start in zip(named, anchor, strict=False):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - start, alpha=correction.proximal)
        for name, parameter in named:
            if name in offsets and parameter.grad is not None:
                parameter.grad.add_(offsets[name])

    return correct


def refuse_not_finite(values: Iterable[Tensor], work: Work) -> None:
    """Refuse parameters that are NaN or infinite."""
    if all(bool(torch.isfinite(value).all()) for value in values):
        return
    raise TrainingError(
        f"The parameters of client {work.client} became NaN or infinite in round {work.round + 1}. "
        "Lower aggregation.lr, and keep method.clamp and a bounded surrogate on; where many clients label the same "
        "classes, method.lent = 'shared' keeps the lent term small."
    )
