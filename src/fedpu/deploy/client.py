"""The ClientApp of a deployment: what a node answers, from its own data alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedpu.applications.prepared import prepare
from fedpu.applications.training import job_of
from fedpu.config import Config
from fedpu.data import dtype_name
from fedpu.deploy import secure_client
from fedpu.deploy.agreement import refuse_departure
from fedpu.deploy.invited import refuse_uninvited, vouched_clients
from fedpu.deploy.own_data import own_federation, read_own
from fedpu.deploy.protocol import (
    JOIN,
    NEGATIVES,
    NEGATIVES_GROUP,
    SECURE_JOIN,
    SECURE_NEGATIVES,
    SECURE_OPEN,
    SECURE_SHARE,
    SECURE_TRAIN,
    TRAIN_PRIVATE,
    Briefing,
    Presence,
    pack_part,
    refuse_unless_allowed,
)
from fedpu.deploy.settings import NodeSettings
from fedpu.engine import FlowerEngine
from fedpu.engine.flower.client import REFUSED, Assignment, answer, client_app
from fedpu.engine.flower.clients import group
from fedpu.errors import ConfigError, DataError, FedpuError
from fedpu.flower.messages import unpack_work
from fedpu.flower.state_folder import StateFolder
from fedpu.labelling import Client, Federation
from fedpu.priors import Priors
from fedpu.privacy import Layout, layout_for, lent_rules, lent_weight, protect, protect_negatives, secure_rules
from fedpu.privacy.mechanism import Vector
from fedpu.record import ModelCard
from fedpu.registry import is_reference

NODE_FILE = "fedpu-node"
"""key of the node configuration that names the node's own file"""
PARTITION = "partition-id"
"""key of the node configuration that Flower's examples use; enough for a trial"""


@dataclass(frozen=True, eq=False)
class Participant:
    """A node in one run: it keeps its data and its network from round to round."""

    config: Config
    federation: Federation
    """its own data alone, or in a trial the data set that everybody shares"""
    client: Client
    network: nn.Module
    card: ModelCard
    priors: Priors
    """whose priors it trains with"""
    states: Path
    """where it keeps what stays with it between rounds"""


def node_settings(context: Context) -> NodeSettings:
    """Return the node's own configuration."""
    found: Any = context.node_config
    if NODE_FILE in found:
        return NodeSettings.load(Path(str(found[NODE_FILE])))
    if PARTITION in found:
        # It has no data of its own, and no file that could say who may ask it.
        return NodeSettings(name=str(found[PARTITION]), partition=int(found[PARTITION]), insecure=True)
    raise ConfigError(
        f"This node does not say what its data are: start it with --node-config '{NODE_FILE}=\"node.toml\"'."
    )


def deployed_app() -> ClientApp:
    """Return the ClientApp."""
    app = client_app(_assign, [_only_agreed])
    actions: dict[str, Callable[[RecordDict, Context], RecordDict]] = {
        JOIN: _presence,
        NEGATIVES: _own_negatives,
        TRAIN_PRIVATE: _private_update,
        SECURE_JOIN: lambda content, context: secure_client.join(content, context, _identity(content, context)),
        SECURE_SHARE: lambda content, context: secure_client.share(content, context, _identity(content, context)),
        SECURE_NEGATIVES: _secure_negatives,
        SECURE_TRAIN: _secure_update,
        SECURE_OPEN: lambda content, context: secure_client.open_shares(content, context, _identity(content, context)),
    }
    for kind, action in actions.items():
        category, _, name = kind.partition(".")
        register = app.train(name) if category == "train" else app.query(name)
        register(_answering(action))
    return app


def _only_agreed(message: Message, context: Context, answer_it: Callable[[Message, Context], Message]) -> Message:
    """Answer no message, of whatever kind, without an invitation, and none that departs from what was agreed on.

    What leaves is counted on the disk before it does.
    """
    try:
        node = node_settings(context)
        refuse_uninvited(node, message, context)
        leaving = refuse_departure(node, message, context)
        reply = answer_it(message, context)
        if leaving is not None and not reply.has_error():
            leaving.count()
    except FedpuError as error:
        return Message(Error(REFUSED, str(error)), reply_to=message)
    return reply


def _identity(content: RecordDict, context: Context) -> secure_client.Identity:
    """Return who this node is in a secure sum. The invitation was verified before the message got here."""
    return secure_client.Identity.of(node_settings(context), vouched_clients(content))


def _answering(action: Callable[[RecordDict, Context], RecordDict]) -> Callable[[Message, Context], Message]:
    return lambda message, context: answer(message, lambda: action(message.content, context))


def _participant(content: RecordDict, context: Context) -> Participant:
    briefing = Briefing.from_records(content)
    card = briefing.card
    if card is None:
        raise ConfigError("The server has not said what the inputs and classes are.")
    node = node_settings(context)
    return _prepared(node.model_dump_json(), briefing.config, card, context.run_id)


@lru_cache(maxsize=2)
def _prepared(node: str, config: str, card: ModelCard, _run: int) -> Participant:
    """Load a node's data once a run."""
    settings = NodeSettings.model_validate_json(node)
    server = Briefing(config).read_config(settings.allowed)
    if settings.partition is not None:
        if is_reference(server.data.name):
            refuse_unless_allowed(server.data.name, settings.allowed)
        federation, number = prepare(server).federation, settings.partition
        if number >= len(federation):
            raise ConfigError(f"partition = {number} is no client: the server's configuration makes {len(federation)}.")
    else:
        federation, number = own_federation(settings, server, card), 0
    client = federation.client(number)
    shape, dtype = tuple(client.inputs.shape[1:]), dtype_name(client.inputs)
    if (shape, dtype) != (card.shape, card.dtype):
        raise DataError(
            f"The examples of '{settings.name}' are {shape} of {dtype}; those of the federation are {card.shape} of "
            f"{card.dtype}."
        )
    network = server.model.build(card.shape, len(card.classes))
    return Participant(
        server, federation, client, network, card, settings.priors or server.priors, settings.state_folder()
    )


def _presence(content: RecordDict, context: Context) -> RecordDict:
    briefing, node = Briefing.from_records(content), node_settings(context)
    config = briefing.read_config(node.allowed)
    classes: tuple[str, ...] = ()
    if briefing.card is not None:
        inputs = _participant(content, context).client.inputs
    else:
        if node.classes is None:
            raise ConfigError(
                f"The server has no data to know the classes from: set 'classes' in the file of '{node.name}'."
            )
        classes = tuple(node.classes)
        inputs, _ = read_own(node, classes, config.data.tokens)
    examples = None if config.privacy.on else len(inputs)
    return Presence(node.name, examples, tuple(inputs.shape[1:]), dtype_name(inputs), classes).to_records()


def _assign(content: RecordDict, context: Context) -> Assignment:
    mine, briefing = _participant(content, context), Briefing.from_records(content)
    count = len(mine.card.classes)
    job = replace(
        job_of(mine.config, mine.federation),
        priors=mine.priors,
        negatives=torch.zeros(count, count) if briefing.co_negatives is None else briefing.co_negatives,
        clients=briefing.clients,
    )
    engine = mine.config.engine
    report = isinstance(engine, FlowerEngine) and engine.report_risk
    return Assignment(job, mine.client, mine.network, StateFolder(mine.states / briefing.run), report)


def _protected_negatives(content: RecordDict, context: Context) -> tuple[int, Vector]:
    """Return the client's weight in the one sum that the lent term needs, and its part."""
    mine = _participant(content, context)
    privacy, negative = mine.config.privacy, (~mine.client.positive).double().numpy()
    weight = lent_weight(privacy, len(mine.client.inputs), mine.config.method.lends_by_size)
    return weight, protect_negatives(privacy, negative, mine.config.seed, secure_client.number_of(content))


def _protected_update(content: RecordDict, context: Context) -> tuple[int, Vector]:
    """Train, and return the client's weight and its update as the settings let it leave."""
    sent, work = unpack_work(content)
    mine, assignment = _participant(content, context), _assign(content, context)
    update = assignment.update(sent, work)
    config = mine.config
    vector = _layout(mine).vector(sent, update)
    return protect(config.privacy, vector, update.examples, config.seed, work.round, work.client)


def _own_negatives(content: RecordDict, context: Context) -> RecordDict:
    return pack_part(*_protected_negatives(content, context))


def _private_update(content: RecordDict, context: Context) -> RecordDict:
    return pack_part(*_protected_update(content, context))


def _secure_negatives(content: RecordDict, context: Context) -> RecordDict:
    mine = _participant(content, context)
    settings, method, classes = mine.config.privacy, mine.config.method, len(mine.card.classes)
    return secure_client.mask(
        content,
        context,
        _identity(content, context),
        NEGATIVES_GROUP,
        lambda clients: lent_rules(settings, clients, classes, method.lends_by_size),
        lambda: _protected_negatives(content, context),
    )


def _secure_update(content: RecordDict, context: Context) -> RecordDict:
    mine, (_, work) = _participant(content, context), unpack_work(content)
    length = _layout(mine).length
    return secure_client.mask(
        content,
        context,
        _identity(content, context),
        group([work]),
        lambda clients: secure_rules(mine.config.privacy, clients, length),
        lambda: _protected_update(content, context),
    )


def _layout(mine: Participant) -> Layout:
    return layout_for(mine.network, mine.config.aggregation, mine.config.method, len(mine.card.classes))
