"""The contract of an aggregation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import safetensors.torch
import torch
from torch import Tensor, nn

from fedpu.aggregation import Aggregation, ServerState, mean_of
from fedpu.engine import expected_from
from fedpu.method import FedPU, Method
from fedpu.models import Model
from fedpu.round import Broadcast, Tensors, Update, Work, prefixed
from fedpu.testing.promise import Checked, made
from fedpu.testing.rounds import check_rounds, check_same, copied
from fedpu.testing.trial import NEAR, REFERENCE, SHORT, Trial, difference


class Normed(Model):
    """A network with buffers: BatchNorm's running means and variances, and its counter of batches."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network."""
        return nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(shape), 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, classes)
        )


def check_aggregation(aggregation: Aggregation | type[Aggregation], *, method: Method | None = None) -> None:
    """Check that an aggregation keeps every promise that engines rely on; raise :class:`ContractError` where it does
    not.

    A class is made with its defaults. ``method`` is the one that it goes with, where it needs one of its own.
    """
    aggregation = made(Aggregation, aggregation)
    checked = Checked(aggregation)
    with checked.able_to("select clients, and say what is asked of them"):
        _check_selection(checked, aggregation)
        _check_work(checked, aggregation)
    trial = Trial.of(method or FedPU(), aggregation.model_copy(update=SHORT))
    with checked.able_to("combine updates"):
        _check_combining(checked, trial)
    check_rounds(checked, trial)
    with checked.able_to("combine the updates of networks with BatchNorm"):
        _check_buffers(checked, Trial.of(method or FedPU(), trial.config.aggregation, Normed()))


def _check_selection(checked: Checked, aggregation: Aggregation) -> None:
    remedy = (
        "Return a sorted list of numbers below `clients`; draw with fedpu.randomness.numpy_generator(seed, …, round_)"
    )
    for share, clients in ((1.0, 7), (0.1, 100), (0.001, 7)):
        asked = aggregation.model_copy(update={"participation": share})
        chosen = [asked.select(5, round_, clients) for round_ in range(20)]
        fine = all(
            drawn and drawn == sorted(set(drawn)) and drawn[0] >= 0 and drawn[-1] < clients and type(drawn[0]) is int
            for drawn in chosen
        )
        checked.promise(
            "each round has clients, every one once and in increasing order",
            fine,
            f"With participation = {share} of {clients} clients it selected {min(chosen, key=len)} in a round",
            remedy,
        )
        again = [asked.select(5, round_, clients) for round_ in reversed(range(20))][::-1]
        checked.promise(
            "the selection depends on (seed, round) alone",
            chosen == again,
            "Asked for the same rounds again in another order, it selected others",
            remedy,
        )


def _check_work(checked: Checked, aggregation: Aggregation) -> None:
    for round_ in range(5):
        work = aggregation.work(3, round_, [1, 4, 6])
        fine = [(one.client, one.round) for one in work] == [(k, round_) for k in (1, 4, 6)] and all(
            0 <= one.share <= 1 and one.lr > 0 and one.epochs >= 1 for one in work
        )
        checked.promise(
            "there is one piece of work for each selected client, in their order",
            fine,
            f"For the clients 1, 4 and 6 in round {round_} it was {work}",
            "Change what super().work(…) returns with dataclasses.replace",
        )
        checked.promise(
            "what is asked depends on (seed, round, selected) alone",
            _plain(work) == _plain(aggregation.work(3, round_, [1, 4, 6])),
            "Asked again, it was something else",
            "Draw with fedpu.randomness.numpy_generator(seed, purpose, round_)",
        )


def _plain(work: Sequence[Work]) -> list[tuple[Work, dict[str, list[float]]]]:
    return [(one, {name: value.flatten().tolist() for name, value in one.extras.items()}) for one in work]


def _first_round(trial: Trial) -> tuple[ServerState, list[Update]]:
    """Return the server's state before the first round, and every client's update in it."""
    config, state = trial.config, trial.start().state
    sent = Broadcast(state.model, config.aggregation.broadcast(state), state.shared)
    with REFERENCE.start(trial.job) as clients:
        return state, list(clients.update(sent, config.aggregation.work(config.seed, 0, list(range(state.clients)))))


def _check_combining(checked: Checked, trial: Trial) -> None:
    aggregation = trial.config.aggregation
    state, updates = _first_round(trial)
    _check_returned(checked, trial, updates)
    given = prefixed(_given(state) | {f"update {u.client}": u.model for u in updates})
    given |= prefixed({f"extras {u.client}": u.extras for u in updates})
    before = copied(given)
    after = aggregation.combine(state, iter(updates))
    check_same(checked, before, given, "in combine")
    _check_state(checked, state, after)
    backwards = difference(_made(after), _made(aggregation.combine(state, updates[::-1])), NEAR)
    checked.promise(
        "the order of updates does not matter",
        not backwards,
        f"With the updates of a round backwards {backwards} changed",
        "Engines yield updates in orders of their own: use update.client where a client matters",
    )
    if aggregation.takes == "mean":
        _check_mean(checked, trial, state, updates, after)
    one = aggregation.combine(state, updates[:1])
    finite = all(bool(torch.isfinite(value).all()) for value in one.model.values() if value.is_floating_point())
    checked.promise(
        "it can combine the update of a single client",
        finite,
        "With one update the model was not finite",
        "Guard variances and divisions by the number of clients less one",
    )


def _given(state: ServerState) -> dict[str, Tensors]:
    return {"model": state.model, "extras": state.extras, "shared": state.shared, "once": state.once}


def _made(state: ServerState) -> Tensors:
    return prefixed({"model": state.model, "extras": state.extras})


def _check_returned(checked: Checked, trial: Trial, updates: list[Update]) -> None:
    classes = len(trial.data.classes)
    expected = expected_from(trial.job.initial_model(), trial.config.aggregation, trial.config.method, classes).extras
    for update in updates:
        named = {name: (value.shape, value.dtype) for name, value in update.extras.items()}
        told = {name: (value.shape, value.dtype) for name, value in expected.items()}
        checked.promise(
            "`returns` tells the names, shapes and types of what end_client sends",
            named == told,
            f"Client {update.client} sent {named}, and returns tells {told}",
            "Let returns(parameters) give tensors like those of Ending.extras",
        )


def _check_state(checked: Checked, before: ServerState, after: ServerState) -> None:
    kept = (after.round, after.clients, after.buffers) == (before.round + 1, before.clients, before.buffers)
    checked.promise(
        "combine returns the state after the round",
        isinstance(after, ServerState) and kept and not difference(before.once, after.once),
        f"The round was {before.round} before it and {after.round} after it, or another part of the state was lost",
        "Return state.after(model, name=tensor, …)",
    )
    alike = {name: (value.shape, value.dtype) for name, value in before.model.items()}
    checked.promise(
        "the model keeps its names, shapes and types, buffers among them",
        alike == {name: (value.shape, value.dtype) for name, value in after.model.items()},
        "After a round they were others",
        "Go through all of update.model, and turn results back with .to(value.dtype)",
    )
    tensors = all(isinstance(name, str) and isinstance(value, Tensor) for name, value in after.extras.items())
    checked.promise(
        "the server's state is tensors by name",
        tensors,
        f"After a round its extras were {after.extras!r}",
        "Keep numbers as torch.tensor(…): what is no tensor can't be in a checkpoint",
    )
    own = {name: value.clone() for name, value in after.extras.items()}
    lost = difference(own, safetensors.torch.load(safetensors.torch.save(own)))
    checked.promise(
        "the server's state can be written to a checkpoint and read back",
        not lost,
        f"Read back, {lost} was not the same",
        "Use types that safetensors knows",
    )


def _check_mean(
    checked: Checked, trial: Trial, state: ServerState, updates: list[Update], expected: ServerState
) -> None:
    for groups in ([updates[:2], updates[2:]], [updates]):
        means = [_joined(group) for group in groups]
        far = difference(_made(trial.config.aggregation.combine(state, means)), _made(expected), NEAR)
        checked.promise(
            'an aggregation with takes = "mean" only ever adds updates up, weighted by their examples',
            not far,
            f"Handed {len(means)} means of clients instead of {len(updates)} updates it gave another {far}",
            'Set takes = "each", or make the result from fedpu.aggregation.weighted_mean',
        )


def _joined(updates: list[Update]) -> Update:
    """Return several clients as one update, as an engine does."""
    mean = mean_of(updates)
    first = updates[0]
    return replace(
        first, examples=mean.examples, model=mean.of("model"), extras=mean.of("extras"), clients=round(mean.clients)
    )


def _check_buffers(checked: Checked, trial: Trial) -> None:
    start = trial.start().state
    first = trial.run(REFERENCE, until=1)
    _check_state(checked, start, first.state)
    after = trial.run(REFERENCE, first, until=2).state
    statistics = {name: value for name, value in after.model.items() if name in start.buffers}
    checked.promise(
        "statistics of BatchNorm are averaged, or at least kept",
        all(bool(torch.isfinite(value).all()) for value in statistics.values())
        and all(bool((value >= 0).all()) for name, value in statistics.items() if name.endswith("running_var")),
        "After two rounds a running mean or variance was not finite, or a variance was negative",
        "Do not step along buffers: state.parameters has what is trained, and state.buffers the other names",
    )
    trial.job.initial_model().load_state_dict(after.model)
    with checked.able_to("report the server's extras as plain values"):
        json.dumps(trial.config.aggregation.report(after))
