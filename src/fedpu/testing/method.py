"""The contract of a method."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedpu.aggregation import Aggregation, FedAvg
from fedpu.engine import Engine, Job, client_outputs, trained_parameters
from fedpu.engine.client import begin, make_batch
from fedpu.labelling import Federation
from fedpu.method import Method, Preparation
from fedpu.randomness import torch_generator
from fedpu.round import Broadcast, Tensors, Work
from fedpu.testing.promise import Checked, made
from fedpu.testing.rounds import check_finite, check_rounds
from fedpu.testing.trial import LOCAL, REFERENCE, SHORT, Outcome, Trial, difference, same

CPU = torch.device("cpu")
ORDER = "Use inputs, labels and outputs, never where an example stands"
CLOSE = 1e-4
"""how far sums over the same examples in another order may be from each other"""


def check_method(method: Method | type[Method], *, aggregation: Aggregation | None = None) -> None:
    """Check that a method keeps every promise that engines rely on; raise :class:`ContractError` where it does not.

    A class is made with its defaults. ``aggregation`` is the one that it goes with, where it needs one of its own.
    """
    method = made(Method, method)
    checked = Checked(method)
    trial = Trial.of(method, (aggregation or FedAvg(lr=0.05)).model_copy(update=SHORT))
    with checked.able_to("give the terms of its loss on all examples of a client"):
        _check_terms(checked, trial)
    with checked.able_to("draw the batches of an update"):
        _check_batches(checked, trial)
    outcome = check_rounds(checked, trial)
    with checked.able_to("take the examples of a client in any order"):
        _check_order(checked, trial)
    _check_hidden(checked, trial, outcome)
    _check_unusual_clients(checked, trial)


@dataclass(frozen=True, eq=False)
class Look:
    """All that a method does on one client that takes one step on all of its examples."""

    terms: Tensors
    gradient: Tensors
    examples: Tensors
    ending: Preparation
    drew: bool
    """did it draw random numbers before or after the step?"""


def look(job: Job, examples: Tensors | None = None) -> Look:
    """Have a method go through an update on client 0, batch in the order of its entries.

    ``examples`` are what it has prepared for them, where that is not to be its own.
    """
    method, client, network = job.method, job.federation.client(0), job.initial_model()
    work = Work(client=0, round=0, lr=0.1)
    shared = method.first_shared(len(job.federation.classes), trained_parameters(network))
    sent = Broadcast(dict(network.state_dict()), shared=shared)
    begun = begin(job, network, client, sent, work, None, job.co_negatives())
    drew = False

    def generator(purpose: str) -> torch.Generator:
        nonlocal drew
        drew = True
        return begun.now.generator(purpose)

    now = replace(begun.now, generator=generator)
    prepared = method.prepare(now)
    if prepared.state is None:
        prepared = replace(prepared, state=now.state)
    if examples is not None:
        prepared = replace(prepared, examples=examples)
    begun = replace(begun, now=now, preparation=prepared)
    usable = torch.arange(len(client.labels)) if method.uses_unlabelled else (client.labels >= 0).nonzero()[:, 0]
    network.load_state_dict(begun.model)
    terms = method.objective(network, make_batch(job, begun, usable, 0, CPU), begun.constants)
    gradient = _gradient(network, terms)
    ending = method.finish(now, prepared, lambda: client_outputs(client, network))
    return Look(terms, gradient, prepared.examples, ending, drew)


def _gradient(network: nn.Module, terms: Tensors) -> Tensors:
    if not isinstance(terms.get("total"), Tensor) or not terms["total"].requires_grad:
        return {}
    terms["total"].backward()
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


def _check_terms(checked: Checked, trial: Trial) -> None:
    found = look(trial.job)
    terms, gradient = found.terms, found.gradient
    promise = "objective returns the terms of a loss by name, single numbers as tensors, with 'total' among them"
    told = ", ".join(f"{name}: {_shown(value)}" for name, value in terms.items())
    single = all(isinstance(value, Tensor) and value.dim() == 0 for value in terms.values())
    checked.promise(promise, single and "total" in terms, f"It returned {{{told}}}", "Return {…: loss, 'total': loss}")
    check_finite(checked, {name: value.item() for name, value in terms.items()}, "On the first client")
    total = terms["total"].item()
    parts = [value.item() for name, value in terms.items() if name != "total"]
    checked.promise(
        "'total' is the sum of the other terms",
        not parts or abs(sum(parts) - total) <= 1e-3 * max(1.0, abs(total)),
        f"On the first client they add up to {sum(parts):.6g}, and total is {total:.6g}",
        "Return every part of the total by name, multiplied by its weight",
    )
    moves = bool(gradient) and any(bool(part.any()) for part in gradient.values())
    checked.promise(
        "its total has a gradient with respect to the network",
        moves,
        "On the first client, untrained, the gradient was zero or there was none",
        "Make the total from forward(batch.inputs), without detach, argmax or .item() on the way",
    )
    checked.promise(
        "its gradient is finite",
        all(bool(torch.isfinite(part).all()) for part in gradient.values()),
        "On the first client it was not",
        "Guard logarithms, roots and divisions where their argument can be zero",
    )


def _shown(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r}"


def _check_order(checked: Checked, trial: Trial) -> None:
    """Compare a client with the same client, its examples sorted by their true classes."""
    job = replace(trial.job, augmentation=type(trial.job.augmentation)())  # views are drawn by position
    found = look(job)
    moved, order = _sorted_by_class(trial)
    there = replace(job, federation=moved)
    expected = {name: value[order] for name, value in found.examples.items()}
    promise = "the order of a client's examples tells it nothing"
    how = "When the examples of a client were sorted by their true classes,"
    if found.drew:  # random numbers of each example can't move along with it
        other = look(there, expected)
    else:
        other = look(there)
        changed = difference(expected, other.examples, CLOSE)
        checked.promise(promise, not changed, f"{how} what prepare found for them changed: {changed}", ORDER)
        changed = difference(found.ending.shared, other.ending.shared, CLOSE)
        checked.promise(promise, not changed, f"{how} what it shares changed: {changed}", ORDER)
        changed = _state_change(found.ending.state or {}, other.ending.state or {}, order)
        checked.promise(promise, not changed, f"{how} the state that it leaves changed: {changed}", ORDER)
    changed = difference(found.terms, other.terms, CLOSE) or difference(found.gradient, other.gradient, CLOSE)
    checked.promise(promise, not changed, f"{how} the loss of all of them in one batch changed: {changed}", ORDER)


def _sorted_by_class(trial: Trial) -> tuple[Federation, Tensor]:
    """Return the federation with the examples of client 0 in the order of their true classes, and that order."""
    federation = trial.job.federation
    mine = federation.span(0)
    order = trial.prepared.hidden.labels[mine].argsort(stable=True)
    labels, inputs = federation.labels.clone(), federation.inputs.clone()
    labels[mine] = labels[mine][order]
    inputs[mine] = inputs[mine][order]  # client 0 is the first, and every example is there once
    return replace(federation, labels=labels, inputs=inputs), order


def _state_change(before: Tensors, after: Tensors, order: Tensor) -> str | None:
    for name, value in before.items():
        other = after.get(name)
        moved = value[order] if value.dim() and len(value) == len(order) else value  # a row for each example
        if other is None or not (same(value, other, CLOSE) or same(moved, other, CLOSE)):
            return f"'{name}'"
    return None


def _check_batches(checked: Checked, trial: Trial) -> None:
    method, labels = trial.config.method, trial.job.federation.client(0).labels
    if method.shuffles:
        return

    def draw(round_: int, share: float = 1.0) -> list[Tensor]:
        work = Work(client=0, round=round_, lr=0.1, batch_size=20, share=share)
        return method.batches(labels, work, lambda epoch: torch_generator(0, "batches", round_, 0, epoch))

    rounds = [draw(round_) for round_ in range(60)]
    fine = all(
        batch.dtype == torch.int64 and len(batch) and int(batch.min()) >= 0 and int(batch.max()) < len(labels)
        for batches in rounds
        for batch in batches
    )
    checked.promise(
        "batches are lists of positions of the client's entries, none of them empty",
        fine,
        f"For a client with {len(labels)} entries it returned other ones",
        "Return a list of int64 tensors with numbers from 0 to len(labels) − 1",
    )
    again = all(torch.equal(one, other) for one, other in zip(rounds[3], draw(3), strict=False))
    checked.promise(
        "batches are drawn from the generator of an epoch",
        again and len(rounds[3]) == len(draw(3)),
        "Drawn again with the same generator they were others",
        "Use generator(epoch) for everything that is random, and nothing else",
    )
    checked.promise(
        "a straggler does only its share of the steps",
        len(rounds[0]) == 1 or len(draw(0, share=0.5)) < len(rounds[0]),
        f"Asked for half of them, it still drew {len(rounds[0])} batches",
        "End with fedpu.method.cut_short(batches, work)",
    )
    _check_shuffled(checked, labels, rounds)


def _check_shuffled(checked: Checked, labels: Tensor, rounds: list[list[Tensor]]) -> None:
    """Check that examples of a kind are as likely to be drawn, and neighbours as likely to meet, as any others."""
    promise, remedy = "batches are drawn at random", "Shuffle with torch.randperm(…, generator=generator(epoch))"
    every = [batch for batches in rounds for batch in batches]
    drawn = torch.bincount(torch.cat(every), minlength=len(labels)).float()
    used = drawn > 0  # neighbours among those that are drawn at all: labelled ones may happen to stand together
    near, far = 0, 0
    for batch in every:
        present = torch.zeros(len(labels), dtype=torch.bool)
        present[batch] = True
        here = present[used]
        near += int((here & here.roll(1)).sum())
        far += int((here & here.roll(len(here) // 2)).sum())
    for kind, members in (("labelled", labels >= 0), ("unlabelled", labels < 0)):
        counts = drawn[members]
        first, second = counts[: len(counts) // 2].mean(), counts[len(counts) // 2 :].mean()
        even = not len(counts) or not counts.sum() or float((first - second).abs()) < 0.5 * float(counts.mean())
        checked.promise(
            promise,
            even and not (len(counts) and float(counts.mean()) >= 10 and not counts.min()),
            f"In sixty rounds some {kind} examples were drawn far more often than others, by their place",
            remedy,
        )
    full = all(len(batch) == len(labels) for batches in rounds for batch in batches)
    checked.promise(
        promise,
        full or near < 2 * max(far, 20),
        "In sixty rounds examples that stand side by side met in a batch twice as often as others, or more",
        remedy,
    )


def _check_hidden(checked: Checked, trial: Trial, outcome: Outcome) -> None:
    """Overwrite hidden labels where they live: training must not notice."""
    trial.data.labels.fill_(7)
    trial.data.test_labels.fill_(5)
    trial.prepared.hidden.labels.fill_(3)
    assert trial.prepared.test_set is not None
    trial.prepared.test_set.labels.fill_(5)
    with checked.able_to("be trained where hidden labels are wrong"):
        differs = trial.run().differs_from(outcome)
    checked.promise(
        "hidden labels are out of its reach",
        not differs,
        f"When the true labels of the data set and of the test set were overwritten, {differs} changed",
        "Use the labels of the batch and of the client, and nothing else",
    )


def _check_unusual_clients(checked: Checked, trial: Trial) -> None:
    federation = trial.job.federation
    nothing = replace(
        federation,
        labels=torch.full_like(federation.labels, -1),
        positive=torch.zeros_like(federation.positive),
    )
    everything = replace(federation, labels=torch.zeros_like(federation.labels))
    engines: tuple[Engine, ...] = (LOCAL, REFERENCE)
    for changed, what in ((nothing, "labelled"), (everything, "unlabelled")):
        with checked.able_to(f"be trained on a client that has no {what} example"):
            for engine in engines:
                with engine.start(replace(trial.job, federation=changed)) as clients:
                    start = trial.start().state
                    sent = Broadcast(start.model, trial.config.aggregation.broadcast(start), start.shared)
                    (update,) = clients.update(sent, [Work(client=0, round=0, lr=0.1, batch_size=20)])
                check_finite(checked, update.terms, f"On a client that has no {what} example")
