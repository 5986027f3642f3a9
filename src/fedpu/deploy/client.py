"""The ClientApp of a deployment: what a node answers, from its own data alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedpu.config import Config
from fedpu.deploy import secure_client
from fedpu.deploy.own_data import own_client, read_own
from fedpu.deploy.own_priors import estimated_priors
from fedpu.deploy.protocol import (
    JOIN,
    NEGATIVES,
    SECURE_JOIN,
    SECURE_NEGATIVES,
    SECURE_OPEN,
    SECURE_SHARE,
    SECURE_TRAIN,
    TRAIN_PRIVATE,
    Briefing,
    Presence,
    pack_part,
)
from fedpu.deploy.settings import NodeSettings
from fedpu.engine import FlowerEngine, ModelState, Work
from fedpu.engine.estimating import estimates
from fedpu.engine.flower.client import Assignment, answer, client_app
from fedpu.engine.flower.messages import unpack_work
from fedpu.errors import ConfigError, DataError
from fedpu.experiment import prepare
from fedpu.labelling import Client
from fedpu.models import OwnModel
from fedpu.priors import Priors
from fedpu.privacy import Layout, protect, protect_negatives
from fedpu.privacy.mechanism import Vector
from fedpu.record import ModelCard

NODE_FILE = "fedpu-node"
"""key of the node configuration that names the node's own file"""
PARTITION = "partition-id"
"""key of the node configuration that Flower's examples use; enough for a trial"""


@dataclass(frozen=True, eq=False)
class Participant:
    """A node in one run: it keeps its data and its network from round to round."""

    config: Config
    client: Client
    network: nn.Module
    card: ModelCard
    priors: Priors
    """whose priors it trains with"""


def node_settings(context: Context) -> NodeSettings:
    """Return the node's own configuration."""
    found: Any = context.node_config
    if NODE_FILE in found:
        return NodeSettings.load(Path(str(found[NODE_FILE])))
    if PARTITION in found:
        return NodeSettings(name=str(found[PARTITION]), partition=int(found[PARTITION]))
    raise ConfigError(
        f"This node does not say what its data are: start it with --node-config '{NODE_FILE}=\"node.toml\"'."
    )


def deployed_app() -> ClientApp:
    """Return the ClientApp."""
    app = client_app(_assign_plain)
    actions: dict[str, Callable[[RecordDict, Context], RecordDict]] = {
        JOIN: _presence,
        NEGATIVES: _own_negatives,
        TRAIN_PRIVATE: _private_update,
        SECURE_JOIN: secure_client.join,
        SECURE_SHARE: secure_client.share,
        SECURE_NEGATIVES: _secure_negatives,
        SECURE_TRAIN: _secure_update,
        SECURE_OPEN: secure_client.open_shares,
    }
    for kind, action in actions.items():
        category, _, name = kind.partition(".")
        register = app.train(name) if category == "train" else app.query(name)
        register(_answering(action))
    return app


def _answering(action: Callable[[RecordDict, Context], RecordDict]) -> Callable[[Message, Context], Message]:
    return lambda message, context: answer(message, lambda: action(message.content, context))


def _participant(content: RecordDict, context: Context) -> Participant:
    briefing = Briefing.from_records(content)
    card = briefing.card
    if card is None:
        raise ConfigError("The server has not said what the inputs and classes are.")
    node = node_settings(context)
    if node.secure_aggregation and not briefing.read_config().privacy.secure_aggregation:
        raise ConfigError(f"'{node.name}' takes part only under secure aggregation, and this run has none.")
    return _prepared(node.model_dump_json(), briefing.config, card, context.run_id)


@lru_cache(maxsize=2)
def _prepared(node: str, config: str, card: ModelCard, _run: int) -> Participant:
    """Load a node's data once a run."""
    settings, server = NodeSettings.model_validate_json(node), Briefing(config).read_config()
    if isinstance(server.model, OwnModel) and server.model.name != settings.model:
        raise ConfigError(
            f"The server asks for the model '{server.model.name}': to allow it, set 'model' in the file of "
            f"'{settings.name}'."
        )
    if settings.partition is not None:
        client = _trial_client(server, settings.partition)
    else:
        client = own_client(settings, server, card)
    shape, dtype = tuple(client.inputs.shape[1:]), str(client.inputs.dtype).removeprefix("torch.")
    if (shape, dtype) != (card.shape, card.dtype):
        raise DataError(
            f"The examples of '{settings.name}' are {shape} of {dtype}; those of the federation are {card.shape} of "
            f"{card.dtype}."
        )
    network = server.model.build(card.shape, len(card.classes))
    return Participant(server, client, network, card, settings.priors or server.priors)


def _trial_client(config: Config, number: int) -> Client:
    federation = prepare(config).federation
    if number >= len(federation):
        raise ConfigError(f"partition = {number} is no client: the server's configuration makes {len(federation)}.")
    return federation.client(number)


def _presence(content: RecordDict, context: Context) -> RecordDict:
    briefing, node = Briefing.from_records(content), node_settings(context)
    config = briefing.read_config()
    classes: tuple[str, ...] = ()
    if briefing.card is not None:
        inputs = _participant(content, context).client.inputs
    else:
        if node.classes is None:
            raise ConfigError(
                f"The server has no data to know the classes from: set 'classes' in the file of '{node.name}'."
            )
        classes = tuple(node.classes)
        inputs, _ = read_own(node, classes)
    examples = None if config.privacy.on else len(inputs)
    dtype = str(inputs.dtype).removeprefix("torch.")
    return Presence(node.name, examples, tuple(inputs.shape[1:]), dtype, classes).to_records()


def _assign_plain(content: RecordDict, model: ModelState, work: Work, context: Context) -> Assignment:
    if Briefing.from_records(content).read_config().privacy.on:
        raise ConfigError("The server asked for a plain update of a run in which [privacy] is on.")
    return _assign(content, model, work, context)


def _assign(content: RecordDict, model: ModelState, work: Work, context: Context) -> Assignment:
    mine, briefing = _participant(content, context), Briefing.from_records(content)
    count = len(mine.card.classes)
    total = torch.zeros(count, count) if briefing.co_negatives is None else briefing.co_negatives
    method, engine, seed, facts = mine.config.method, mine.config.engine, mine.config.seed, mine.client.facts
    if estimates(mine.priors, method):
        priors = estimated_priors(context, mine.client, mine.network, mine.priors, model, work, seed)
        facts = facts._replace(priors=priors)
    task = method.task(facts, total, briefing.clients)
    report = isinstance(engine, FlowerEngine) and engine.report_risk
    return Assignment(mine.client, method, task, mine.network, seed, report)


def _protected_negatives(content: RecordDict, context: Context) -> Vector:
    """Return the client's part of the one sum that the lent term needs."""
    mine = _participant(content, context)
    negative = (~mine.client.positive).double().numpy()
    return protect_negatives(mine.config.privacy, negative, mine.config.seed, secure_client.number_of(content))


def _protected_update(content: RecordDict, context: Context) -> tuple[int, Vector]:
    """Train, and return the client's weight and its update as the settings let it leave."""
    model, work = unpack_work(content)
    mine, assignment = _participant(content, context), _assign(content, model, work, context)
    update = assignment.update(model, work)
    change = Layout(assignment.network).difference(model, update.model)
    return protect(mine.config.privacy, change, update.examples, mine.config.seed, work.round, work.client)


def _own_negatives(content: RecordDict, context: Context) -> RecordDict:
    _refuse_secure(content)
    return pack_part(1, _protected_negatives(content, context))


def _private_update(content: RecordDict, context: Context) -> RecordDict:
    _refuse_secure(content)
    return pack_part(*_protected_update(content, context))


def _secure_negatives(content: RecordDict, context: Context) -> RecordDict:
    return secure_client.mask(content, context, 1, _protected_negatives(content, context))


def _secure_update(content: RecordDict, context: Context) -> RecordDict:
    return secure_client.mask(content, context, *_protected_update(content, context))


def _refuse_secure(content: RecordDict) -> None:
    """Give nothing in the open where the run's configuration promises a secure sum."""
    if Briefing.from_records(content).read_config().privacy.secure_aggregation:
        raise ConfigError("The server asked in the open for what this run sums up securely.")
