"""A node holds the server to what it was told when it joined: no message may ask for anything else.

The configuration is read once, at joining, by what the node's owner accepts. After that every message must be of that
configuration, ask for the work that follows from it, and stay within the budget.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

from flwr.app import Context, Message, RecordDict

from fedpu.config import Config
from fedpu.deploy.accepts import Accepts, NotAccepted
from fedpu.deploy.invitation import config_hash
from fedpu.deploy.ledger import NEGATIVES, UPDATE, Ledger, Release
from fedpu.deploy.protocol import (
    CLIENT,
    JOIN,
    NUMBER,
    RUN,
    SECURE_NEGATIVES,
    SECURE_TRAIN,
    SUM,
    TRAIN_PRIVATE,
    Briefing,
)
from fedpu.deploy.protocol import NEGATIVES as ASK_NEGATIVES
from fedpu.deploy.settings import NodeSettings
from fedpu.flower.messages import TRAIN, WORK
from fedpu.round import Work

KINDS = {
    **dict.fromkeys((TRAIN, TRAIN_PRIVATE, SECURE_TRAIN), UPDATE),
    **dict.fromkeys((ASK_NEGATIVES, SECURE_NEGATIVES), NEGATIVES),
}
"""what leaves a node with the answer to a message; with the others nothing does that depends on its data but n_k"""
EXACT = ("lr", "epochs", "batch_size", "momentum", "weight_decay")


@dataclass(frozen=True)
class Leaving:
    """What is about to leave a node, to be counted in its ledger."""

    ledger: Ledger
    release: Release

    def count(self) -> None:
        """Note it, before it leaves."""
        self.ledger.count(self.release)


def refuse_departure(node: NodeSettings, message: Message, context: Context) -> Leaving | None:
    """Refuse a message that departs from what the node accepts and has agreed to; return what its answer gives out."""
    content, kind = message.content, message.metadata.message_type
    if RUN not in content:
        if kind in KINDS:
            raise NotAccepted("The server has not said which run this is of.")
        return None  # a stage of a secure sum that gives nothing out
    briefing, accepts = Briefing.from_records(content), node.accepted
    config = briefing.read_config(node.allowed)
    if accepts is None and node.insecure:  # a trial that promises nothing
        refuse_other_kind(config, kind)
        return None
    ledger = Ledger(node.state_folder())
    if accepts is not None:
        accepts = accepts.after(ledger.first)
        accepts.refuse(config, node.name)
    if kind == JOIN:
        ledger.join(context.run_id, config_hash(briefing.config), config.privacy)
    else:
        ledger.refuse_not_joined(context.run_id, config_hash(briefing.config))
    number = _number(content)
    ledger.fix(briefing.run, _facts(briefing, content, number))
    refuse_other_kind(config, kind)
    if kind not in KINDS:
        return None
    if KINDS[kind] == UPDATE:
        refuse_other_work(config, content, briefing.clients)
    release = Release.of(KINDS[kind], config.privacy)
    ledger.refuse_beyond(accepts or Accepts(), release, node.name)
    _refuse_twice(ledger, content, kind, context.run_id, config_hash(briefing.config))
    return Leaving(ledger, release)


def _refuse_twice(ledger: Ledger, content: RecordDict, kind: str, run: int, config: str) -> None:
    """Refuse to answer for a round, or for the one sum, a second time under one invitation.

    Noise that is new each time could be averaged away, and two secure sums over different clients tell the update of
    whoever is in one of them alone. A round that was interrupted is asked for again under an invitation of its own.
    """
    work: Any = content.get(WORK)
    which = NEGATIVES if KINDS[kind] == NEGATIVES else f"round-{work['round']}"
    if not ledger.use(run, f"{config}-{which}"):
        raise NotAccepted("This client has answered for this round already.")


def _facts(briefing: Briefing, content: RecordDict, number: int | None) -> dict[str, Any]:
    """Return what a message says of its run, by names that a sentence can use; None: it does not say."""
    run: Any = content[RUN]
    if briefing.run == Briefing.run:  # it has no name yet: the clients are still being gathered
        return {}
    total = hashlib.sha256(repr(list(run[SUM])).encode()).hexdigest() if SUM in run else None
    return {
        "the configuration": config_hash(briefing.config),
        "the description of inputs and classes": run["card"] or None,
        "the number of clients": briefing.clients or None,
        "the sum over clients": total,
        "the number of this client": number,
    }


def _number(content: RecordDict) -> int | None:
    """Return which client of the run the message takes the node for."""
    asked: Any = content.get(WORK)
    record: Any = content.get(CLIENT)
    found = {int(one[key]) for one, key in ((asked, "client"), (record, NUMBER)) if one is not None}
    if len(found) > 1:
        raise NotAccepted("The message takes this node for two clients at once.")
    return found.pop() if found else None


def refuse_other_kind(config: Config, kind: str) -> None:
    """Refuse to answer in another way than the run's configuration promises."""
    privacy = config.privacy
    if kind in (TRAIN_PRIVATE, ASK_NEGATIVES) and privacy.secure_aggregation:
        raise NotAccepted("The server asked in the open for what this run sums up securely.")
    if kind == TRAIN and privacy.on:
        raise NotAccepted("The server asked for a plain update of a run in which [privacy] is on.")
    if kind == TRAIN_PRIVATE and not privacy.on:
        raise NotAccepted("The server asked for a protected update of a run in which [privacy] is off.")
    if kind in (SECURE_TRAIN, SECURE_NEGATIVES) and not privacy.secure_aggregation:
        raise NotAccepted("The server asked for a part of a secure sum in a run that has none.")
    if KINDS.get(kind) == NEGATIVES and not config.method.lends:
        raise NotAccepted("The server asked which classes are not labelled here, and the method does not use that.")


def refuse_other_work(config: Config, content: RecordDict, clients: int) -> None:
    """Refuse work that does not follow from the configuration: other rounds, batches, steps or learning rates."""
    record: Any = content[WORK]
    known = {field.name for field in fields(Work)} - {"extras"}
    asked = dict(record)
    if not asked.keys() <= known or not {"client", "round", "lr"} <= asked.keys():
        raise NotAccepted("The work that the server asks for can't be read.")
    work, aggregation = Work(**asked), config.aggregation
    if type(work.round) is not int or not 0 <= work.round < aggregation.rounds:
        raise NotAccepted(f"The server asks for round {work.round!r} of a run of {aggregation.rounds}.")
    if type(work.client) is not int or not 0 <= work.client < max(clients, 1):
        raise NotAccepted(f"The server takes this node for client {work.client!r} of {clients}.")
    drawn = aggregation.select(config.seed, work.round, clients)
    public = config.privacy.differential != "central"  # there the draw is as secret as the noise
    if public and work.client not in drawn:
        raise NotAccepted(f"The server asks this client in round {work.round + 1}, for which it was not drawn.")
    planned = {one.client: one for one in aggregation.work(config.seed, work.round, drawn if public else [work.client])}
    expected = planned[work.client]
    for name in EXACT:
        given, due = getattr(work, name), getattr(expected, name)
        if given != due:
            raise NotAccepted(f"The server asks for {name} = {given!r}; the configuration says {due!r}.")
    if work.share != expected.share if public else not 0 < work.share <= 1:
        raise NotAccepted(f"The server asks for {work.share!r} of the steps; the configuration says otherwise.")
