"""Secure sums against a server that does not follow the protocol: substituted keys, small groups, other rules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, RecordDict

from deploy.in_process import NAMES, Table, own_data_config
from fedpu.data import Dataset
from fedpu.deploy.certificates import write_node_key
from fedpu.deploy.protocol import SECURE, SECURE_JOIN, SECURE_OPEN, SECURE_SHARE, SECURE_TRAIN
from fedpu.deploy.round_keys import SumName, signed
from fedpu.deploy.secure_client import read_key
from fedpu.deploy.server import serve
from fedpu.deploy.settings import NodeSettings
from fedpu.errors import FedpuError
from fedpu.flower.messages import MODEL, pack_sent, unpack_work
from fedpu.flower.wire import Request
from fedpu.privacy.secagg import (
    Inbox,
    Neighbourhood,
    PublicKeys,
    Rules,
    SecureAggregationError,
    SecureClient,
    blocks,
    encode,
)
from fedpu.record import RunDirectory

SECURE_RUN = ["privacy.secure_aggregation=true", "method.lent=off", "aggregation.rounds=1", "engine.deadline=1"]
VICTIM = 1


@pytest.fixture
def table(digits: Dataset, tmp_path: Path) -> Table:
    return Table(tmp_path, digits)


class Puppets:
    """Neighbours that the server has made up: it has all of their keys."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.masks = {number: blocks.new_key_pair() for number in numbers}
        self.seals = {number: blocks.new_key_pair() for number in numbers}

    def keys(self, number: int) -> PublicKeys:
        return PublicKeys(self.masks[number][1], self.seals[number][1])


def test_without_signatures_a_server_that_substitutes_keys_reads_a_single_vector() -> None:
    """The attack that signed keys are there for, played to its end: it recovers the client's numbers exactly."""
    rules, values = Rules(3, 5, 1.0, max_weight=9), np.linspace(-0.9, 0.9, 5)
    puppets = Puppets([1, 2])
    client, keys = SecureClient.join(0, rules)
    fake = [puppets.keys(number) for number in puppets.numbers]
    client, shares = client.share(
        Neighbourhood(puppets.numbers, [one.mask_key for one in fake], [one.seal_key for one in fake])
    )
    secrets = {number: blocks.agree(puppets.seals[number][0], [keys.seal_key])[0] for number in puppets.numbers}
    opened = [
        blocks.unseal(secrets[number], 0, number, sealed)[0]
        for number, sealed in zip(shares.receivers, shares.sealed, strict=True)
    ]
    inbox = Inbox([1, 2], [blocks.seal(secrets[number], number, 0, b"x", b"x") for number in (1, 2)])
    _, masked = client.mask(inbox, 7, values)
    words = np.frombuffer(masked.words, rules.word) - blocks.mask(blocks.join(opened), 6, rules.word)
    for number in puppets.numbers:
        shared = blocks.agree(puppets.masks[number][0], [keys.mask_key])[0]
        words = words + blocks.mask(shared, 6, rules.word)
    np.testing.assert_array_equal(words, encode(rules, 7, values).astype(rules.word))


Fields = dict[str, Any]


def changing(kind: str, change: Callable[[Fields], Fields], node: int = VICTIM) -> Callable[[Request], Request]:
    """Change what the server sends to the victim in one stage."""

    def apply(request: Request) -> Request:
        if request.kind != kind or request.node != node:
            return request
        content = RecordDict(dict(request.content))
        fields: Any = content[SECURE]
        content[SECURE] = ConfigRecord(change(dict(fields)))
        return replace(request, content=content)

    return apply


def substituted(fields: Fields, prove: Callable[[int, PublicKeys], bytes] | None = None) -> Fields:
    """Hand on keys of the server's own in place of the neighbours', with their proofs or others."""
    puppets = Puppets(list(fields["neighbours"]))
    keys = [puppets.keys(number) for number in puppets.numbers]
    new = {"mask_keys": [one.mask_key for one in keys], "seal_keys": [one.seal_key for one in keys]}
    if prove is not None:
        new["proofs"] = [prove(number, one) for number, one in zip(puppets.numbers, keys, strict=True)]
    return fields | new


Key = ec.EllipticCurvePrivateKey


def signed_by(key: Key | Callable[[int], Key], names: Callable[[int], str]) -> Callable[[Fields], Fields]:
    def prove(number: int, keys: PublicKeys) -> bytes:
        private = key if isinstance(key, Key) else key(number)
        return signed(keys, SumName(7, "1"), number, names(number), private).proof

    return lambda fields: substituted(fields, prove)


def key_of(table: Table, name: str) -> Key:
    return read_key(NodeSettings.load(table.folder / f"{name}.toml"))


def refused(table: Table, change: Callable[[Request], Request], told: str, keys: dict[str, str] | None = None) -> None:
    """Check that the victim says so, and gives nothing out from there on."""
    config, before = own_data_config(*SECURE_RUN), len(table.sent)
    with suppress(FedpuError):  # the round may fail, or go on without the victim
        out = table.folder / f"run-{before}"
        serve(table.signed(config, keys=keys, change=change), config, out, resume=False)
    assert any(told in refusal for refusal in table.refusals), table.refusals
    assert "east" not in [name for name, kind, _ in table.sent[before:] if kind == SECURE_OPEN]


def test_substituted_keys_are_refused_whoever_signs_them(table: Table) -> None:
    told = "are not signed by a client that is known here"
    refused(table, changing(SECURE_SHARE, substituted), told)
    stranger = ec.generate_private_key(ec.SECP384R1())
    refused(table, changing(SECURE_SHARE, signed_by(stranger, lambda number: NAMES[number])), told)
    assert "east" not in [name for name, kind, _ in table.sent if kind == SECURE_TRAIN]


def test_a_colluding_node_can_not_stand_for_several_others(table: Table) -> None:
    accomplice = key_of(table, "west")
    one_name = changing(SECURE_SHARE, signed_by(accomplice, lambda number: "west"))
    refused(table, one_name, "One client stands for several")
    refused(table, changing(SECURE_SHARE, signed_by(accomplice, lambda number: NAMES[number])), "are not signed by")
    twice = table.keys | {"south": table.keys["west"]}
    both = changing(SECURE_SHARE, signed_by(accomplice, lambda number: ("", "south", "west", "west")[number]))
    refused(table, both, "One client stands for several", keys=twice)


def test_keys_of_another_sum_are_refused(table: Table) -> None:
    kept: dict[str, list[bytes]] = {}

    def hand_on_old_keys(fields: Fields) -> Fields:
        if not kept:
            kept.update({name: fields[name] for name in ("mask_keys", "seal_keys", "proofs")})
            return fields
        return fields | kept

    config = own_data_config(*SECURE_RUN, "aggregation.rounds=2", "engine.min_clients=4")
    with pytest.raises(FedpuError):
        table.train(config, change=changing(SECURE_SHARE, hand_on_old_keys))
    assert any("are not signed by" in refusal for refusal in table.refusals)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (SECURE_SHARE, lambda fields: {name: list(value)[:2] for name, value in fields.items()}),
        (SECURE_TRAIN, lambda fields: {name: list(value)[:2] for name, value in fields.items()}),
        (SECURE_OPEN, lambda fields: {"alive": list(fields["alive"])[:3], "dropped": list(fields["alive"])[3:]}),
    ],
    ids=["few neighbours", "few that take part", "few that are left"],
)
def test_a_client_hides_among_as_many_as_its_owner_asks_for(
    table: Table, kind: str, change: Callable[[Fields], Fields]
) -> None:
    table.write_file("east", "[accepts]\ngroup = 4")
    refused(table, changing(kind, change), "would be hidden among 3 clients; its owner accepts 4 or more")


@pytest.mark.parametrize(
    "rules", [{"range": 1e9}, {"bits": 40}, {"max_weight": 1}, {"threshold": 0.51}, {"neighbours": 2}, {"length": 3}]
)
def test_the_rules_of_a_sum_follow_from_the_configuration(table: Table, rules: Fields) -> None:
    refused(table, changing(SECURE_JOIN, lambda fields: fields | rules), "do not follow from the run's configuration")


def test_a_node_that_knows_its_peers_need_not_trust_the_owner_with_their_keys(table: Table) -> None:
    made_up = {name: table.folder / f"false-{name}" for name in NAMES if name != "east"}
    for path in made_up.values():
        write_node_key(path)
    forged = table.keys | {
        name: " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2]) for name, path in made_up.items()
    }
    peers = "\n".join(["[peers]", *(f'{name} = "{key}"' for name, key in table.keys.items() if name != "east")])
    table.write_file("east", peers)
    table.train(own_data_config(*SECURE_RUN), "honest")
    assert RunDirectory(table.folder / "honest").rounds()[0]["clients"] == 4

    keys = {name: read_key(NodeSettings(name=name, data="d", key=str(path))) for name, path in made_up.items()}
    attack = changing(SECURE_SHARE, signed_by(lambda number: keys[NAMES[number]], lambda number: NAMES[number]))
    refused(table, attack, "are not signed by a client that is known here", keys=forged)
    assert "east" not in [name for name, kind, _ in table.sent[-4:] if kind == SECURE_SHARE]
    table.write_file("east")
    before, config = len(table.sent), own_data_config(*SECURE_RUN)
    with suppress(FedpuError):
        serve(table.signed(config, keys=forged, change=attack), config, table.folder / "trusting", resume=False)
    assert "east" in [name for name, kind, _ in table.sent[before:] if kind == SECURE_SHARE], "it trusts the owner"


def test_a_server_that_sends_one_client_another_model_gets_no_sum(table: Table) -> None:
    """A model that nobody else has, such as one whose gradient is zero elsewhere, would single a client out."""

    def another_model(request: Request) -> Request:
        if request.kind != SECURE_TRAIN or request.node != VICTIM:
            return request
        content = RecordDict(dict(request.content))
        sent, _ = unpack_work(content)
        content[MODEL] = pack_sent(replace(sent, model={name: value + 0.01 for name, value in sent.model.items()}))
        return replace(request, content=content)

    with pytest.raises(SecureAggregationError, match="The secure sum can't be used"):
        table.train(own_data_config(*SECURE_RUN), change=another_model)
    assert len([1 for _, kind, _ in table.sent if kind == SECURE_OPEN]) == 4, "everybody has done its part"


def test_a_client_whose_keys_are_not_its_own_is_left_out_and_the_sum_goes_on(table: Table) -> None:
    def unsigned(name: str, kind: str, content: RecordDict) -> RecordDict:
        if (name, kind) == ("west", SECURE_JOIN):
            fields: Any = content[SECURE]
            content[SECURE] = ConfigRecord(dict(fields) | {"proof": b""})
        return content

    table.tap_reply = unsigned
    table.train(own_data_config(*SECURE_RUN))
    [line] = RunDirectory(table.folder / "run").rounds()
    assert line["clients"] == 3
    assert "not signed" in line["left_out"]["west"]
