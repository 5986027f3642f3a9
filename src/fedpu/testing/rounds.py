"""What everything that takes part in rounds promises, method and aggregation alike."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace

from fedpu.round import Broadcast, Tensors, prefixed
from fedpu.testing import generators
from fedpu.testing.promise import Checked
from fedpu.testing.trial import LOCAL, REFERENCE, TWO_WORKERS, Outcome, Trial, difference

MEMORY = "it remembers nothing but the states that it is handed"
RANDOM = "all randomness comes from (seed, purpose, round, client), never from a global generator"
KEEP = "Keep what must be remembered in a client's or the server's state, never on the class, the object or the module"
DRAW = "Draw from the generator that you are handed, or from fedpu.randomness with (seed, purpose, round, client)"


def check_rounds(checked: Checked, trial: Trial) -> Outcome:
    """Check that nothing but the configuration and its seed decides what comes out; return what does."""
    with checked.able_to("train for a round in which every client takes part"):
        trial.like(participation=1.0).run(REFERENCE, until=1)
        LOCAL.slow_because(trial.job)  # the first time it tries the method out, which no later run does again
    with checked.able_to("go on for several rounds, with clients that take part for the first time in a late one"):
        outcome = _check_repeated(checked, trial)
        _check_interleaved(checked, trial, outcome)
    with checked.able_to("be trained on two worker processes"):
        _check_workers(checked, trial, outcome)
    with checked.able_to("be trained on both engines of one machine"):
        _check_engines(checked, trial, outcome)
    with checked.able_to("go on from a checkpoint"):
        _check_resumed(checked, trial, outcome)
    with checked.able_to("be trained for two rounds by hand"):
        _check_in_place(checked, trial)
    return outcome


def _check_repeated(checked: Checked, trial: Trial) -> Outcome:
    """Run again and again in one process, global generators seeded alike and otherwise; return what comes out."""
    with generators.seeded(1):
        before = generators.states()
        outcome = trial.run()
        moved = generators.moved(before)
    with generators.seeded(1):
        again = trial.run().differs_from(outcome)
    with generators.seeded(2):
        otherwise = trial.run().differs_from(outcome)
    for number, terms in enumerate(outcome.terms):
        check_finite(checked, terms, f"In round {number + 1} of a run")
    checked.promise(MEMORY, not again, f"A second run in the same process gave another {again}", KEEP)
    checked.promise(RANDOM, not otherwise, f"With global generators seeded otherwise {otherwise} changed", DRAW)
    checked.promise(RANDOM, moved is None, f"After a run {moved} global generator was not as before it", DRAW)
    return outcome


def _check_interleaved(checked: Checked, trial: Trial, outcome: Outcome) -> None:
    """Run another seed's rounds between its own."""
    other = Trial.of(trial.config.method, trial.config.aggregation, trial.config.model, seed=1)
    with generators.seeded(1), ExitStack() as stack:
        mine = trial.course(stack.enter_context(LOCAL.start(trial.job)))
        theirs = other.course(stack.enter_context(LOCAL.start(other.job)))
        *_, (last, _) = zip(mine, theirs, strict=True)
    differs = last.differs_from(outcome)
    checked.promise(MEMORY, not differs, f"With the rounds of another run between its own, {differs} changed", KEEP)


def _check_workers(checked: Checked, trial: Trial, outcome: Outcome) -> None:
    differs = trial.run(TWO_WORKERS).differs_from(outcome)
    checked.promise(
        "the number of workers changes nothing", not differs, f"With two workers instead of one {differs} changed", KEEP
    )


def _check_engines(checked: Checked, trial: Trial, outcome: Outcome) -> None:
    far = outcome.far_from(trial.run(REFERENCE))
    checked.promise(
        "all engines give the same model",
        not far,
        f"On the engines 'local' and 'reference' {far} is not the same to 2e-5",
        "Let results depend neither on the order of examples in a batch nor on that of updates in a round; where there "
        "is a linear_form, it must be the form of the objective",
    )


def _check_resumed(checked: Checked, trial: Trial, outcome: Outcome) -> None:
    half = trial.run(until=(outcome.state.round + 1) // 2)
    differs = trial.run(start=half.reloaded()).differs_from(outcome)
    checked.promise(
        "a run that was stopped and goes on from its checkpoint gives the same bits",
        not differs,
        f"Stopped after round {half.state.round} and gone on with, {differs} changed",
        KEEP,
    )


def _check_in_place(checked: Checked, trial: Trial) -> None:
    """Train two rounds by hand, and look at everything that was handed out before the second."""
    config, federation = trial.config, trial.job.federation
    aggregation = config.aggregation
    with REFERENCE.start(trial.job) as clients:
        state = trial.start().state
        for round_ in range(2):
            sent = Broadcast(state.model, aggregation.broadcast(state), state.shared, round_)
            work = aggregation.work(config.seed, round_, list(range(len(federation))))
            groups = {"model": sent.model, "extras": sent.extras, "shared": sent.shared, "server": state.extras}
            groups |= {f"state of client {k}": kept for k, kept in clients.states().items()}
            groups |= {"data": {"inputs": federation.inputs, "labels": federation.labels, "rows": federation.rows}}
            given = prefixed(groups)
            before = copied(given)
            updates = list(clients.update(sent, work))
            check_same(checked, before, given, "on the clients")
            state = replace(aggregation.combine(state, updates), shared=state.shared)


def check_finite(checked: Checked, terms: dict[str, float], where: str) -> None:
    """Check that no term of a loss is NaN or infinite."""
    wrong = next((name for name, value in terms.items() if not math.isfinite(value)), None)
    checked.promise(
        "the terms of its loss are finite",
        wrong is None,
        f"{where} the term '{wrong}' was {terms.get(wrong or '')}",
        "Guard logarithms and divisions: a batch may have no labelled example, or none of a class",
    )


def copied(tensors: Tensors) -> Tensors:
    """Return copies of tensors."""
    return {name: value.clone() for name, value in tensors.items()}


def check_same(checked: Checked, before: Tensors, after: Tensors, where: str) -> None:
    """Check that what was handed out is as it was."""
    changed = difference(before, after)
    checked.promise(
        "it leaves what it is given as it is",
        not changed,
        f"A round changed {changed} in place {where}",
        "Make new tensors: x = x + y instead of x += y or x.add_(y)",
    )
