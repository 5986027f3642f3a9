"""The table of docs/privacy.md: what a server that only listens learns, and clients that pool what they are sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import RecordDict

from deploy.in_process import EXAMPLES, Table, own_data_config
from fedpu.data import Dataset
from fedpu.deploy.protocol import CLIENT, COUNTS, JOIN, NEGATIVES, PART, SECURE, SECURE_NEGATIVES, unpack_part
from fedpu.flower.messages import MODEL, RISK, unpack_tensors
from fedpu.privacy import Privacy, protect
from fedpu.privacy.mechanism import Vector, clipped, gaussian
from fedpu.privacy.secagg import (
    Inbox,
    Neighbourhood,
    Rules,
    SecureAggregationError,
    SecureClient,
    SecureServer,
    blocks,
    encode,
)

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


def test_under_secure_aggregation_it_learns_no_size_no_class_set_and_no_update(table: Table) -> None:
    table.train(own_data_config(ONE, *SECURE_RUN))
    assert set(received(table, "north", JOIN)) == {CLIENT}, "nor how many examples there are"
    kinds = {kind for _, kind, _ in table.sent}
    assert not kinds & {NEGATIVES, "train", "train.private"}, "nothing was asked for in the open"
    rules = Rules(4, 100, 1.0, bits=2, max_weight=1)
    fields: Any = received(table, "north", SECURE_NEGATIVES)[SECURE]
    masked = np.frombuffer(fields["words"], rules.word)
    negative = negatives_of(table, "north").astype(float)
    plain = encode(rules, 1, np.outer(negative, negative).reshape(-1)).astype(rules.word)
    assert len(masked) == len(plain) == 101
    assert np.mean(masked == plain) < 0.05
    assert len(np.unique(masked)) > 90, "a uniform word each, where the plain one has two values"


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


def group_of(clients: int) -> tuple[dict[int, SecureClient], bytes]:
    """Return clients that have exchanged shares and sent their vectors, and the seed of client 0's mask."""
    rules = Rules(clients, 2, 1.0)
    server = SecureServer(rules, range(clients))
    there, keys = {}, {}
    for number, agreed in server.begin().items():
        there[number], keys[number] = SecureClient.join(number, agreed)
    shares = {}
    for number, hood in server.introduce(keys.items()).items():
        there[number], shares[number] = there[number].share(hood)
    for number, inbox in server.deliver(shares.items()).items():
        there[number], _ = there[number].mask(inbox, 1, np.zeros(2))
    return there, there[0].seed


def test_fewer_than_a_quorum_of_its_group_can_not_open_a_clients_mask_and_a_quorum_can() -> None:
    there, seed = group_of(6)
    quorum = there[0].rules.quorum(6)
    assert quorum == 4
    pooled = [there[number].seed_shares[0] for number in range(1, 6)]
    assert blocks.join(pooled[:quorum]) == seed
    try:
        too_few = blocks.join(pooled[: quorum - 1])
    except SecureAggregationError:
        return
    assert too_few != seed


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
