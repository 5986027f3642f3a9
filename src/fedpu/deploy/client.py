"""The ClientApp of a deployment: what a node answers, from its own data alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedpu.config import Config
from fedpu.deploy.own_data import own_client, read_own
from fedpu.deploy.protocol import Briefing, Presence, pack_matrix
from fedpu.deploy.settings import NodeSettings
from fedpu.engine import FlowerEngine
from fedpu.engine.flower.client import Assignment, answer, client_app
from fedpu.errors import ConfigError, DataError
from fedpu.experiment import prepare
from fedpu.labelling import Client
from fedpu.models import OwnModel
from fedpu.record import ModelCard
from fedpu.risk import co_negatives

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
    app = client_app(_assign)

    @app.query("join")
    def join(message: Message, context: Context) -> Message:
        return answer(message, lambda: _presence(message.content, context).to_records())

    @app.query("negatives")
    def negatives(message: Message, context: Context) -> Message:
        return answer(message, lambda: _own_negatives(message.content, context))

    return app


def _participant(content: RecordDict, context: Context) -> Participant:
    briefing = Briefing.from_records(content)
    card = briefing.card
    if card is None:
        raise ConfigError("The server has not said what the inputs and classes are.")
    return _prepared(node_settings(context).model_dump_json(), briefing.config, card, context.run_id)


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
    return Participant(server, client, server.model.build(card.shape, len(card.classes)), card)


def _trial_client(config: Config, number: int) -> Client:
    federation = prepare(config).federation
    if number >= len(federation):
        raise ConfigError(f"partition = {number} is no client: the server's configuration makes {len(federation)}.")
    return federation.client(number)


def _presence(content: RecordDict, context: Context) -> Presence:
    briefing, node = Briefing.from_records(content), node_settings(context)
    classes: tuple[str, ...] = ()
    if briefing.card is not None:
        client = _participant(content, context).client
        inputs = client.inputs
    else:
        if node.classes is None:
            raise ConfigError(
                f"The server has no data to know the classes from: set 'classes' in the file of '{node.name}'."
            )
        classes = tuple(node.classes)
        inputs, _ = read_own(node, classes)
    dtype = str(inputs.dtype).removeprefix("torch.")
    return Presence(node.name, len(inputs), tuple(inputs.shape[1:]), dtype, classes)


def _own_negatives(content: RecordDict, context: Context) -> RecordDict:
    mine = _participant(content, context)
    return RecordDict({"co-negatives": pack_matrix(co_negatives(mine.client.positive[None]))})


def _assign(content: RecordDict, client: int, context: Context) -> Assignment:
    mine, briefing = _participant(content, context), Briefing.from_records(content)
    count = len(mine.card.classes)
    total = torch.zeros(count, count) if briefing.co_negatives is None else briefing.co_negatives
    method, engine = mine.config.method, mine.config.engine
    task = method.task(mine.client.facts, total, briefing.clients)
    report = isinstance(engine, FlowerEngine) and engine.report_risk
    return Assignment(mine.client, method, task, mine.network, mine.config.seed, report)
