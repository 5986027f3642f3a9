"""The ServerApp of a deployment: the rounds, their measurement and their record, with clients behind Flower's Grid."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedpu.config import Config
from fedpu.data import load
from fedpu.deploy.guard import DeployedGuard, summed_negative_classes
from fedpu.deploy.protocol import Briefing
from fedpu.deploy.roster import Roster, common_card
from fedpu.engine import FlowerEngine, initial_model
from fedpu.engine.flower.clients import NodeClients
from fedpu.engine.flower.exchange import Exchange
from fedpu.engine.flower.wire import GridWire, Wire
from fedpu.errors import ConfigError, FedpuError
from fedpu.experiment import Course, Result, train
from fedpu.labelling import Evaluation
from fedpu.record import Members, ModelCard, RunDirectory, write_atomically

NO_DATA = "none"
"""``data.name`` of a server that has no data set of its own: the model is not measured"""
ERROR_FILE = "error.txt"
log = logging.getLogger("flwr")


def server_app(config_file: Path) -> ServerApp:
    """Return the ServerApp of a configuration file. The run configuration says where to record (``out``), and whether
    to go on with what is there (``resume``).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        told: Any = context.run_config
        out = Path(str(told["out"]))
        try:
            (out / ERROR_FILE).unlink(missing_ok=True)
            serve(GridWire(grid), Config.load(config_file), out, bool(told["resume"]))
        except FedpuError as error:
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(out / ERROR_FILE, f"{error}\n".encode())
            raise

    return app


def serve(wire: Wire, config: Config, out: Path, resume: bool) -> Result:
    """Run a configuration with the clients that connect, and record it in ``out``."""
    if resume:
        directory = RunDirectory.open(out)
        config, members = directory.config(), directory.members()
        _, evaluation = server_data(config)
        roster = Roster(wire, _rules(config), _briefing(config, members), log.info)
        roster.await_return(members.names)
    else:
        card, evaluation = server_data(config)
        roster = Roster(wire, _rules(config), Briefing(config.to_toml(), card), log.info)
        members = _gather(wire, config, card, roster)
        directory = RunDirectory.create_deployed(out, config, members)
    network = initial_model(config.model, members.card.shape, len(members.card.classes), config.seed)
    exchange, about = _exchange(wire, config, members.names, roster), _briefing(config, members).to_records()

    def complete(content: RecordDict) -> None:
        content.update(about)

    guard = None
    if config.privacy.on:
        guard = DeployedGuard(config, network, len(members.names), exchange, complete)
    return train(
        config,
        _course(config, members, evaluation),
        network,
        directory.resume_state(network),
        NodeClients(exchange, complete),
        guard,
        directory,
        lambda line: log.info("round %s of %s: %s", line["round"], config.aggregation.rounds, line.get("accuracy")),
    )


def _gather(wire: Wire, config: Config, card: ModelCard | None, roster: Roster) -> Members:
    """Wait for the clients, and form the one sum over them where the method needs it."""
    present = roster.gather(expected_clients(config))
    names = [one.name for one in present]
    card = card or common_card(present)
    examples = [one.examples for one in present if one.examples is not None]
    members = Members(names, examples if len(examples) == len(names) else None, card, None)
    if not config.method.lends:
        return members
    exchange, about = _exchange(wire, config, names, roster), _briefing(config, members).to_records()
    total = summed_negative_classes(config.privacy, exchange, about, len(names), len(card.classes), config.seed)
    return replace(members, co_negatives=total.tolist())


def _exchange(wire: Wire, config: Config, names: list[str], roster: Roster) -> Exchange:
    return Exchange(wire, _rules(config), lambda: roster.locate(names), lambda number: names[number])


def expected_clients(config: Config) -> int | list[str]:
    """Return how many clients, or which, a deployment of the configuration waits for."""
    given: int | list[str] | None = _rules(config).clients or getattr(config.partition, "clients", None)
    if given is None:
        raise ConfigError("A deployment must know how many clients to wait for: set engine.clients.")
    return given


def server_data(config: Config) -> tuple[ModelCard | None, Evaluation | None]:
    """Return what the server's own data set says: inputs, classes and normalisation, and what to measure on."""
    if config.data.name == NO_DATA:
        return None, None
    data = load(config.data)
    dtype = str(data.inputs.dtype).removeprefix("torch.")
    none = torch.empty(0, dtype=torch.int64)
    card = ModelCard(data.shape, dtype, data.classes, data.normalisation)
    return card, Evaluation(data.test_inputs, data.test_labels, none, none, data.normalisation)


def _rules(config: Config) -> FlowerEngine:
    if not isinstance(config.engine, FlowerEngine):
        raise ConfigError(f'A deployment runs on engine.name = "flower"; it is {config.engine.model_dump()["name"]!r}.')
    return config.engine


def _briefing(config: Config, members: Members) -> Briefing:
    total = None if members.co_negatives is None else torch.tensor(members.co_negatives)
    return Briefing(config.to_toml(), members.card, len(members.names), total)


def _course(config: Config, members: Members, evaluation: Evaluation | None) -> Course:
    facts = {
        "data": config.data.name,
        "clients": len(members.names),
        "examples": None if members.examples is None else sum(members.examples),
    }
    return Course(members.card, len(members.names), evaluation, facts)


__all__ = ["ERROR_FILE", "expected_clients", "serve", "server_app", "server_data"]
