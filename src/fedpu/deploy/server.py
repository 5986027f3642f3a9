"""The ServerApp of a deployment: the rounds, their measurement and their record, with clients behind Flower's Grid."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedpu.applications.prepared import ServerSide
from fedpu.applications.training import Result, first_state, guard_of, train
from fedpu.config import Config
from fedpu.data import load
from fedpu.deploy.folder import refuse_validation
from fedpu.deploy.guard import NegativeClasses, ProtectedNodes, summed_negative_classes
from fedpu.deploy.invited import SignedWire, server_wire
from fedpu.deploy.protocol import Briefing
from fedpu.deploy.roster import Roster, common_card
from fedpu.deploy.round_keys import SumName, signer
from fedpu.deploy.sums import Vouch, anybody
from fedpu.engine import Clients, FlowerEngine, initial_model
from fedpu.engine.base import expected_from
from fedpu.engine.flower.clients import NodeClients, Promised
from fedpu.errors import ConfigError, FedpuError
from fedpu.flower.exchange import NO_ANSWER, Exchange
from fedpu.flower.wire import Wire
from fedpu.labelling import TestSet
from fedpu.privacy.secagg import PublicKeys, SecureAggregationError
from fedpu.record import InUse, Members, ModelCard, RunDirectory, write_atomically

NO_DATA = "none"
"""``data.name`` of a server that has no data set of its own: the model is not measured"""
ERROR_FILE = "error.txt"
LOG_FILE = "server.log"
log = logging.getLogger("flwr")


def server_app(config_file: Path) -> ServerApp:
    """Return the ServerApp of a configuration file. The run configuration says where to record (``out``), and whether
    to go on with what is there (``resume``).
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings: Any = context.run_config
        out = Path(str(settings["out"]))
        try:
            (out / ERROR_FILE).unlink(missing_ok=True)
            with _logged(out):
                serve(server_wire(grid, context), Config.load(config_file), out, bool(settings["resume"]))
        except InUse:  # whoever waits for the run that is under way must not take this for its end
            raise
        except FedpuError as error:
            out.mkdir(parents=True, exist_ok=True)
            write_atomically(out / ERROR_FILE, f"{error}\n".encode())
            raise

    return app


@contextmanager
def _logged(out: Path) -> Iterator[None]:
    """Write what the server says to a file of the run directory, too."""
    out.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(out / LOG_FILE, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()


def serve(wire: Wire, config: Config, out: Path, resume: bool) -> Result:
    """Run a configuration with the clients that connect, and record it in ``out``."""
    refuse_validation(config)
    if resume:
        with RunDirectory.open(out, check=False).locked() as directory:
            config, members = directory.config(), directory.members()
            _, test_set = server_data(config)
            roster = _roster(wire, config, _briefing(config, members))
            roster.await_return(members.names)
            return _train(wire, config, members, roster, test_set, directory)
    card, test_set = server_data(config)
    roster = _roster(wire, config, Briefing(config.to_toml(), card))
    members = _gather(wire, config, card, roster)
    with RunDirectory.create_deployed(out, config, members).locked() as directory:
        return _train(wire, config, members, roster, test_set, directory)


def _train(
    wire: Wire, config: Config, members: Members, roster: Roster, test_set: TestSet | None, directory: RunDirectory
) -> Result:
    classes, count = len(members.card.classes), len(members.names)
    network = initial_model(config.model, members.card.shape, classes, config.seed)
    exchange, about = _exchange(wire, config, members.names, roster), _briefing(config, members).to_records()

    def complete(content: RecordDict) -> None:
        content.update(about)

    guard = guard_of(config, network, count, classes)
    if guard:
        clients: Clients = ProtectedNodes(guard, exchange, complete, _vouch(wire, members.names))
    else:
        expected = expected_from(network, config.aggregation, config.method, classes)
        promised = Promised(expected, members.examples or [], _rules(config).report_risk)
        clients = NodeClients(exchange, complete, promised)
    return train(
        config,
        _server_side(config, members, test_set),
        network,
        directory.resume_state(first_state(config, network, count, classes), network),
        clients,
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
    by_size, vouch = config.method.lends_by_size, _vouch(wire, names)
    found = summed_negative_classes(config.privacy, exchange, about, members, config.seed, by_size, vouch)
    return _only(members, found, exchange.left_out)


def _only(members: Members, found: NegativeClasses, left_out: Mapping[str, str]) -> Members:
    """Return the clients that are in the one sum: without its part, nobody could lend to the others as it should."""
    total: list[list[float]] = found.total.tolist()
    if len(found.clients) == len(members.names):
        return replace(members, co_negatives=total)
    names = [members.names[client] for client in found.clients]
    gone = {name: left_out.get(name, NO_ANSWER) for name in members.names if name not in names}
    for name, reason in gone.items():
        log.info("'%s' takes no part in this run: %s", name, reason)
    # Under another name of the run: clients hold it to the number that it has told them, and numbers change.
    return Members(
        names,
        None if members.examples is None else [members.examples[client] for client in found.clients],
        members.card,
        total,
        left_out=gone,
    )


def _vouch(wire: Wire, names: Sequence[str]) -> Vouch:
    """Return a check of the keys that clients send for a secure sum, where the owner vouches for their own."""
    if not isinstance(wire, SignedWire):
        return anybody
    run, known = wire.run, wire.clients

    def check(client: int, label: str, keys: PublicKeys) -> str | None:
        try:
            name = signer(keys, SumName(run, label), client, known)
        except SecureAggregationError as error:
            return str(error)
        return None if name == names[client] else f"its keys are signed by '{name}'"

    return check


def _roster(wire: Wire, config: Config, briefing: Briefing) -> Roster:
    return Roster(wire, _rules(config), briefing, log.info, counted=not config.privacy.on)


def _exchange(wire: Wire, config: Config, names: list[str], roster: Roster) -> Exchange:
    return Exchange(wire, _rules(config), lambda: roster.locate(names), lambda number: names[number])


def expected_clients(config: Config) -> int | list[str]:
    """Return how many clients, or which, a deployment of the configuration waits for."""
    given: int | list[str] | None = _rules(config).clients or getattr(config.partition, "clients", None)
    if given is None:
        raise ConfigError("A deployment must know how many clients to wait for: set engine.clients.")
    return given


def server_data(config: Config) -> tuple[ModelCard | None, TestSet | None]:
    """Return what the server's own data set says: inputs, classes and normalisation, and what to measure on."""
    if config.data.name == NO_DATA:
        return None, None
    data = load(config.data)
    return ModelCard.of(data), TestSet.of(data)


def _rules(config: Config) -> FlowerEngine:
    if not isinstance(config.engine, FlowerEngine):
        raise ConfigError(f'A deployment runs on engine.name = "flower"; it is {config.engine.model_dump()["name"]!r}.')
    return config.engine


def _briefing(config: Config, members: Members) -> Briefing:
    total = None if members.co_negatives is None else torch.tensor(members.co_negatives)
    return Briefing(config.to_toml(), members.card, len(members.names), total, members.run)


def _server_side(config: Config, members: Members, test_set: TestSet | None) -> ServerSide:
    facts: dict[str, Any] = {
        "data": config.data.name,
        "clients": len(members.names),
        "examples": None if members.examples is None else sum(members.examples),
    }
    if members.left_out:
        facts["left_out"] = members.left_out
    return ServerSide(members.card, len(members.names), test_set, facts)


__all__ = ["ERROR_FILE", "expected_clients", "serve", "server_app", "server_data"]
