"""The table of docs/privacy.md: what a server that only listens learns, and clients that pool what they are sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import RecordDict

from deploy.in_process import EXAMPLES, Table, own_data_config
from fedpu.data import Dataset
from fedpu.deploy.protocol import (
    CLIENT,
    COUNTS,
    JOIN,
    NEGATIVES,
    PART,
    SECURE,
    SECURE_JOIN,
    SECURE_NEGATIVES,
    SECURE_OPEN,
    SECURE_SHARE,
    SECURE_TRAIN,
    pack_part,
    unpack_part,
)
from fedpu.flower.messages import MODEL, RISK, unpack_tensors
from fedpu.privacy import Privacy, lent_rules, protect
from fedpu.privacy.mechanism import Vector, clipped, gaussian
from fedpu.privacy.secagg import (
    Inbox,
    Neighbourhood,
    PublicKeys,
    Rules,
    SecureAggregationError,
    SecureClient,
    SecureServer,
    Unmask,
    blocks,
    encode,
)
from fedpu.record import RunDirectory

SECURE_RUN = ["privacy.secure_aggregation=true"]
CENTRAL = ["privacy.differential=central", "privacy.noise_source=system", "privacy.clip=0.3"]
LOCAL = ["privacy.differential=local", "privacy.noise_source=system", "privacy.clip=0.3"]
ONE = "aggregation.rounds=1"


@pytest.fixture
def table(digits: Dataset, tmp_path: Path) -> Table:
    return Table(tmp_path, digits)


def received(table: Table, name: str, kind: str) -> RecordDict:
    """Return what the server was last sent by a client."""
    return [content for who, what, content in table.sent if (who, what) == (name, kind)][-1]


def negatives_of(table: Table, name: str) -> np.ndarray:
    labels = np.load(table.folder / f"{name}.npz")["y"]
    return ~np.isin(np.arange(10), labels[labels >= 0])


# A curious server, which keeps everything that it is sent.


def test_without_protection_the_server_learns_sizes_class_sets_and_every_update(table: Table) -> None:
    table.train(own_data_config(ONE))
    counts: Any = received(table, "north", JOIN)[COUNTS]
    assert counts["examples"] == EXAMPLES
    _, part = unpack_part(received(table, "north", NEGATIVES), 100)
    assert np.array_equal(part.reshape(10, 10).diagonal() == 1, negatives_of(table, "north"))
    update = received(table, "north", "train")
    assert set(update) == {MODEL, COUNTS}
    assert RISK not in update
    assert len(unpack_tensors(update[MODEL])) == 4, "all of its parameters"


@pytest.mark.parametrize("more", [[], CENTRAL, LOCAL], ids=["secure", "central and secure", "local and secure"])
def test_under_secure_aggregation_it_learns_no_class_set_and_no_update(table: Table, more: list[str]) -> None:
    config = own_data_config(ONE, *SECURE_RUN, *more)
    table.train(config)
    assert set(received(table, "north", JOIN)) == {CLIENT}, "nor how many examples there are"
    kinds = {kind for _, kind, _ in table.sent}
    assert kinds == {JOIN, SECURE_JOIN, SECURE_SHARE, SECURE_NEGATIVES, SECURE_TRAIN, SECURE_OPEN}, "all under masks"
    rules = lent_rules(config.privacy, 4, 10)
    fields: Any = received(table, "north", SECURE_NEGATIVES)[SECURE]
    masked = np.frombuffer(fields["words"], rules.word)
    negative = negatives_of(table, "north").astype(float)
    plain = encode(rules, 1, np.outer(negative, negative).reshape(-1)).astype(rules.word)
    assert len(masked) == len(plain) == 101
    assert np.mean(masked == plain) < 0.05
    assert len(np.unique(masked)) > 90, "a uniform word each, where the plain one has two values"


@pytest.mark.parametrize(("settings", "told"), [(CENTRAL, True), (LOCAL, False)], ids=["central", "local"])
def test_under_central_noise_the_server_learns_class_sets_and_under_local_noise_it_does_not(
    table: Table, settings: list[str], told: bool
) -> None:
    table.train(own_data_config(ONE, *settings))
    weight, part = unpack_part(received(table, "north", NEGATIVES), 100)
    guessed = part.reshape(10, 10).diagonal() > 0.5
    assert weight == 1, "its size is not told either"
    assert np.array_equal(guessed, negatives_of(table, "north")) == told
    if not told:
        assert np.std(part) == pytest.approx(10 * 8.0, rel=0.3), "a part has norm 10 at most"


def test_without_the_lent_term_nobody_is_asked_for_classes(table: Table) -> None:
    table.train(own_data_config(ONE, "method.lent=off"))
    assert {kind for _, kind, _ in table.sent} == {JOIN, "train"}


@pytest.mark.parametrize("settings", [[], SECURE_RUN, CENTRAL, LOCAL], ids=["off", "secure", "central", "local"])
def test_terms_of_the_risk_leave_only_if_they_are_asked_for_and_never_with_privacy(
    table: Table, settings: list[str]
) -> None:
    table.train(own_data_config(ONE, "method.lent=off", "engine.report_risk=true", *settings))
    sent = {record for name, kind, content in table.sent if kind.startswith("train") for record in content}
    assert sent == ({MODEL, COUNTS, RISK} if not settings else {SECURE} if settings is SECURE_RUN else {PART})


def test_a_nodes_own_priors_change_its_update_and_nothing_else_that_it_sends(table: Table) -> None:
    replies = []
    for run, values in enumerate(([0.1] * 10, [0.37, 0.21, *[0.0525] * 8]), 7):
        table.write_file("north", f'[priors]\nsource = "given"\nvalues = {values}')
        table.train(own_data_config(ONE), f"run-{run}", run=run)
        replies.append({kind: dict(content) for name, kind, content in table.sent if name == "north"})
        table.sent.clear()
    even, uneven = replies
    models = [unpack_tensors(sent["train"].pop(MODEL)) for sent in replies]
    assert any(not torch.equal(models[0][name], models[1][name]) for name in models[0]), "it has trained with them"
    assert even == uneven


def test_a_client_returns_its_control_variate_with_scaffold_and_nothing_more(table: Table) -> None:
    table.train(own_data_config(ONE, "method.lent=off", "aggregation.name=scaffold"))
    groups = {name.partition(".")[0] for name in unpack_tensors(received(table, "north", "train")[MODEL])}
    assert groups == {"model", "extras"}
    assert set(received(table, "north", "train")) == {MODEL, COUNTS}


def sent_part(table: Table, name: str) -> Vector:
    record: Any = received(table, name, "train.private")[PART]
    return np.frombuffer(record["values"], "<f8")


def test_under_central_noise_the_server_sees_the_clipped_update_and_under_local_noise_it_does_not(table: Table) -> None:
    parts = {}
    for run, (name, settings) in enumerate({"central": CENTRAL, "local": LOCAL}.items(), 7):
        found = []
        for again in range(2):
            table.train(own_data_config(ONE, "method.lent=off", *settings), f"{name}-{again}", run=10 * run + again)
            found.append(sent_part(table, "north"))
        parts[name] = found
    first, second = parts["central"]
    assert np.array_equal(first, second), "no noise is on it when it leaves"
    assert np.linalg.norm(first) <= 0.3 * (1 + 1e-9)
    one, other = parts["local"]
    assert np.std(one - other) == pytest.approx(0.3 * np.sqrt(2), rel=0.15)
    assert np.linalg.norm(one) > 3 * 0.3, "the noise is larger than what it hides"
    assert np.std(one - first) == pytest.approx(0.3, rel=0.15)


@pytest.mark.parametrize("source", ["seed", "system"])
def test_the_server_takes_noise_of_the_seed_off_again_and_not_the_systems(source: str) -> None:
    settings = Privacy(differential="local", noise_source=source, noise_multiplier=2.0)
    update = np.linspace(-1, 1, 5000)
    _, left = protect(settings, update, 9, seed=3, round_=4, client=1)
    guessed = left - 2.0 * gaussian("seed", 5000, 3, "local noise", 4, 1)
    error = np.abs(guessed - clipped(update, 1.0)).max()
    assert (error < 1e-12) == (source == "seed")
    if source == "system":
        assert np.std(guessed) > 2.0


def test_a_server_without_data_hears_of_shapes_and_classes_and_scales_by_constants(table: Table) -> None:
    for name in table.named:
        table.write_file(name, f"classes = {[str(one) for one in range(10)]}")
    table.train(own_data_config(ONE, "method.lent=off", "data.name=none"))
    client: Any = received(table, "north", JOIN)[CLIENT]
    assert dict(client) == {
        "name": "north",
        "shape": [1, 8, 8],
        "dtype": "uint8",
        "classes": [str(one) for one in range(10)],
    }
    assert {record for _, kind, content in table.sent for record in content} == {CLIENT, COUNTS, MODEL}
    scale = RunDirectory(table.folder / "run").members().card.normalisation
    assert (scale.scale, scale.mean, scale.std) == (1 / 255, (0.5,), (0.25,)), "whatever anybody's data are like"


def test_a_client_whose_part_of_the_sum_is_no_good_is_left_out_of_the_run_and_named(table: Table) -> None:
    both = np.load(table.folder / "east.npz")["x"], np.tile(np.arange(10), EXAMPLES // 10)
    np.savez(table.folder / "east.npz", x=both[0], y=both[1])  # it labels every class

    def lies(name: str, kind: str, content: RecordDict) -> RecordDict:
        return pack_part(1, np.full(100, 0.5)) if (name, kind) == ("west", NEGATIVES) else content

    table.tap_reply = lies
    result = table.train(own_data_config(ONE))
    directory = RunDirectory(table.folder / "run")
    assert directory.members().names == ["east", "north", "south"]
    assert "something else than its part" in directory.members().left_out["west"]
    assert result.summary["left_out"] == directory.members().left_out


# Clients that pool what they know.


def test_all_that_a_client_is_sent_is_models_work_and_the_one_sum(table: Table) -> None:
    seen: list[RecordDict] = []

    def listen(name: str, kind: str, content: RecordDict) -> RecordDict:
        if name == "west":
            seen.append(content)
        return content

    table.tap_request = listen
    table.train(own_data_config())
    assert {record for content in seen for record in content} == {"run", "invitation", "client", "model", "work"}
    about: list[Any] = [content["run"] for content in seen]
    assert {key for run in about for key in run} == {"config", "card", "clients", "run", "co-negatives"}
    total = np.array(about[-1]["co-negatives"]).reshape(10, 10)
    sets = np.array([negatives_of(table, name) for name in table.named], dtype=float)
    assert np.array_equal(total, sets.T @ sets), "of all clients together"
    text = "".join(str(content["invitation"]) for content in seen)
    assert not any(name in text for name in table.named), "nor who else there is"


def test_where_sums_are_secure_clients_are_told_who_is_registered_with_their_keys(table: Table) -> None:
    seen: list[Any] = []

    def listen(name: str, kind: str, content: RecordDict) -> RecordDict:
        if name == "west":
            seen.append(content["invitation"])
        return content

    table.tap_request = listen
    table.train(own_data_config(ONE, "method.lent=off", *SECURE_RUN))
    assert all(json.loads(one["statement"])["clients"] == table.keys for one in seen)


@dataclass(frozen=True)
class Group:
    """Clients that have exchanged shares and sent their vectors, and all that the server has handed on between them."""

    clients: dict[int, SecureClient]
    keys: dict[int, PublicKeys]
    words: np.ndarray
    """what client 0 has sent under its masks"""
    rules: Rules

    @classmethod
    def of(cls, clients: int, value: float = 0.0) -> Group:
        rules = Rules(clients, 2, 1.0)
        server = SecureServer(rules, range(clients))
        there, keys, shares, sent = {}, {}, {}, {}
        for number, agreed in server.begin().items():
            there[number], keys[number] = SecureClient.join(number, agreed)
        for number, hood in server.introduce(keys.items()).items():
            there[number], shares[number] = there[number].share(hood)
        for number, inbox in server.deliver(shares.items()).items():
            there[number], sent[number] = there[number].mask(inbox, 1, np.full(2, value))
        return cls(there, keys, np.frombuffer(sent[0].words, rules.word), rules)

    def unmasked(self, seed_shares: list[bytes], key_shares: list[bytes]) -> np.ndarray | None:
        """Take client 0's masks off with shares of its two secrets; None, where they do not give a secret."""
        try:
            seed, private = blocks.join(seed_shares), blocks.join(key_shares)
        except SecureAggregationError:
            return None
        if len(private) != blocks.SCALAR or blocks.public_key(private) != self.keys[0].mask_key:
            return None
        length, word = len(self.words), self.rules.word
        words = self.words - blocks.mask(seed, length, word)
        others = [number for number in self.clients if number]
        for secret in blocks.agree(private, [self.keys[number].mask_key for number in others]):
            words = words + blocks.mask(secret, length, word)  # client 0 has taken them off: its number is the lowest
        return words


def reads(group: Group, seed_shares: list[bytes], key_shares: list[bytes]) -> bool:
    """Does somebody with these shares read what client 0 has sent?"""
    found = group.unmasked(seed_shares, key_shares)
    return found is not None and np.array_equal(found, encode(group.rules, 1, np.full(2, 0.7)).astype(group.rules.word))


def test_the_server_and_a_quorum_of_its_group_read_a_clients_vector_and_fewer_do_not() -> None:
    group = Group.of(6, 0.7)
    quorum = group.rules.quorum(6)
    assert quorum == 4
    pooled = [group.clients[number] for number in range(1, 6)]
    seeds, keys = [one.seed_shares[0] for one in pooled], [one.key_shares[0] for one in pooled]
    assert reads(group, seeds[:quorum], keys[:quorum])
    assert not reads(group, seeds[: quorum - 1], keys[: quorum - 1])


@pytest.mark.parametrize(("accomplices", "succeeds"), [(0, False), (1, False), (2, True)])
def test_telling_clients_of_different_dropouts_needs_a_third_of_a_group_as_accomplices(
    accomplices: int, succeeds: bool
) -> None:
    """Some are told that client 0 has sent its vector, and others that it has not, to get both of its secrets."""
    best = False
    for told_alive in range(1, 6 - accomplices):
        group = Group.of(6, 0.7)
        seeds, keys = [], []
        for number, client in group.clients.items():
            if number > 5 - accomplices:  # it gives everything that it has
                seeds.append(client.seed_shares[0])
                keys.append(client.key_shares[0])
                continue
            alive = number <= told_alive
            request = Unmask(list(range(6)), []) if alive else Unmask([1, 2, 3, 4, 5], [0])
            _, opened = client.open(request)
            (seeds if alive else keys).append(dict(zip(opened.owners, opened.shares, strict=True))[0])
        best = best or reads(group, seeds, keys)
    assert best == succeeds


def test_a_server_may_choose_accomplices_as_a_clients_neighbours() -> None:
    """With few neighbours of each, two of twelve are enough: nothing tells a client who its neighbours should be."""
    rules = Rules(12, 2, 1.0, neighbours=2)
    client, own = SecureClient.join(0, rules)
    friends = {number: SecureClient.join(number, rules) for number in (1, 2)}
    keys = {number: public for number, (_, public) in friends.items()} | {0: own}
    client, shares = client.share(introduced([1, 2], keys))
    sealed = {}
    for number, (friend, _) in friends.items():
        friends[number] = friend.share(introduced([0, 3 - number], keys))
        sealed[number] = friends[number][1].sealed[0]
    _, masked = client.mask(Inbox([1, 2], [sealed[1], sealed[2]]), 1, np.full(2, 0.7))
    given = [
        blocks.unseal(friends[number][0].seal_secrets[0], 0, number, shares.sealed[number - 1]) for number in (1, 2)
    ]
    group = Group(dict.fromkeys(range(3), client), keys, np.frombuffer(masked.words, rules.word), rules)
    assert reads(group, [seed for seed, _ in given], [key for _, key in given])


def introduced(numbers: list[int], keys: dict[int, PublicKeys]) -> Neighbourhood:
    return Neighbourhood(numbers, [keys[one].mask_key for one in numbers], [keys[one].seal_key for one in numbers])


def test_masks_of_clients_that_were_told_different_things_do_not_cancel() -> None:
    rules = Rules(2, 3, 1.0)
    clients = [SecureClient.join(number, rules) for number in (0, 1)]
    shared = []
    for number, (client, _) in enumerate(clients):
        other = clients[1 - number][1]
        shared.append(client.share(Neighbourhood([1 - number], [other.mask_key], [other.seal_key])))
    values = np.array([0.5, -0.25, 0.0])
    for contexts, cancels in (((b"w", b"w"), True), ((b"w", b"v"), False)):
        total = np.zeros(4, rules.word)
        for number, (client, _) in enumerate(shared):
            inbox = Inbox([1 - number], [shared[1 - number][1].sealed[0]])
            _, masked = client.mask(inbox, 1, values, contexts[number])
            total += np.frombuffer(masked.words, rules.word) - blocks.mask(client.seed, 4, rules.word)
        assert np.array_equal(total, 2 * encode(rules, 1, values).astype(rules.word)) == cancels
