"""The question and the verdict of a page, each in a sentence or two that say no more than was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fedpu.report.page.runs import Group, gaps, is_accuracy, same_data

SET_ASIDE = "labelled examples set aside"
"""what is measured on where data are partly labelled and bring no test set"""


def per_cent(share: float | None, digits: int = 2) -> str:
    """Return a share in per cent."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def question(groups: Sequence[Group]) -> str:
    """Return what the runs ask."""
    facts, config = groups[0].runs[0].facts, groups[0].config
    of_clients = next((group.runs[0].facts for group in groups if not group.sees_all_labels), facts)
    data = facts.get("data") or config.get("data", {}).get("name", "these data")
    who = f"{facts['clients']:,} clients" if facts.get("clients") else "clients"
    labelled, examples = of_clients.get("labelled"), of_clients.get("examples")
    if labelled and examples:
        what = f"{labelled:,} of {examples:,} examples ({labelled / examples:.1%})"
    else:
        what = "only some of their examples"
    positive, classes = of_clients.get("positive"), groups[0].runs[0].classes
    each = ""
    if positive and classes:
        fewest, most = min(map(len, positive)), max(map(len, positive))
        number = str(most) if fewest == most else f"{fewest} to {most}"
        each = f", each of them {number} of {len(classes)} classes"
    if len(groups) == 1:
        return f"How good is one classifier for '{data}' when {who} have labelled {what}{each}?"
    return f"Which of {len(groups)} methods makes the most of '{data}' when {who} have labelled {what}{each}?"


def verdict(groups: Sequence[Group]) -> str:
    """Return the answer, as far as the runs give one."""
    unfinished = [group.label for group in groups if not group.finished]
    after = f" Not finished: {', '.join(unfinished)}; the numbers are those of the last round so far." * bool(
        unfinished
    )
    measured = [group for group in groups if group.mean is not None]
    if not measured:
        return f"Nobody has measured it: the runs have no test set.{after}"
    if len(groups) == 1:
        return _alone(measured[0]) + after
    if not same_data(groups):
        return (
            "These runs differ in data, partition, labelling or seeds: their numbers stand side by side, and say "
            f"little about which method is better.{after}"
        )
    return _best(measured) + after


def _alone(group: Group) -> str:
    run = group.runs[-1]
    rounds = run.rounds[-1]["round"] if run.rounds else 0
    of = "the test set" if is_accuracy([group]) else f"the {SET_ASIDE}"
    text = f"{group.label} is right on {per_cent(group.mean)} of {of} after {rounds} rounds"
    if len(group.accuracies) > 1:
        low, high = min(group.accuracies.values()), max(group.accuracies.values())
        text += f", the mean of {len(group.accuracies)} seeds ({per_cent(low)} to {per_cent(high)})"
    each = run.facts.get("per_class_accuracy")
    known = [(value, name) for value, name in zip(each or [], run.classes, strict=False) if value is not None]
    if len(known) > 1:
        worst = min(known)
        text += f"; its weakest class is '{worst[1]}' with {per_cent(worst[0], 1)}"
    estimate = (run.facts.get("estimates") or {}).get("accuracy")
    if estimate is not None:
        text += f". Its accuracy is not known; the estimate is {per_cent(estimate, 0)}"
    return f"{text}."


def _best(groups: Sequence[Group]) -> str:
    """Name the best method that sees no more labels than clients have, and how sure that is."""
    fair = [group for group in groups if not group.sees_all_labels] or list(groups)
    ranked = sorted(fair, key=lambda group: group.mean or 0.0, reverse=True)
    best = ranked[0]
    of = "" if is_accuracy(groups) else f" of the {SET_ASIDE}"
    text = f"{best.label} is the best with {per_cent(best.mean)}{of}"
    closed = gaps(groups).get(best.label)
    if closed and not best.ends("lower"):
        text += f": it closes {statistics.fmean(closed):.0%} of the gap between Baseline-1 and full supervision"
    if len(ranked) == 1:
        return f"{text}."
    return f"{text}. {_lead(best, ranked[1])}"


def _lead(best: Group, second: Group) -> str:
    """Say how far the best is ahead, seed by seed."""
    leads = [best.accuracies[seed] - second.accuracies[seed] for seed in best.accuracies if seed in second.accuracies]
    if not leads:
        return f"It shares no seed with {second.label}, the next."
    points = f"{100 * statistics.fmean(leads):.2f} points"
    if len(leads) == 1:
        return f"It is {points} ahead of {second.label}, on one seed: how much of that is chance was not measured."
    ahead = sum(lead > 0 for lead in leads)
    return f"It is {points} ahead of {second.label} on average, and ahead on {ahead} of {len(leads)} seeds."
