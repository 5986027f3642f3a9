"""The secure sum equals the plain one, whoever drops out; and the server never holds anybody's update."""

from __future__ import annotations

import gc
import itertools
import types
from collections.abc import Collection, Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from fedpu.errors import ConfigError
from fedpu.privacy.secagg import (
    Inbox,
    MaskedVector,
    OpenedShares,
    Rules,
    SealedShares,
    SecureAggregationError,
    SecureClient,
    SecureServer,
    Total,
    Unmask,
    encode,
    secure_sum,
)

Inputs = dict[int, tuple[int, NDArray[np.float64]]]


def some_inputs(clients: Collection[int], length: int, seed: int = 0) -> Inputs:
    rng = np.random.default_rng(seed)
    return {id: (int(rng.integers(1, 500)), rng.uniform(-1, 1, length)) for id in clients}


def rules_for(inputs: Inputs, **changes: Any) -> Rules:
    length = len(next(iter(inputs.values()))[1])
    return replace(Rules(len(inputs), length, range=1.0, max_weight=1000), **changes)


class Session:
    """A sum in which chosen clients fall silent at a stage; a client is put away and read again between messages."""

    def __init__(self, rules: Rules, inputs: Inputs, silent: dict[str, set[int]] | None = None) -> None:
        self.inputs, self.silent = inputs, silent or {}
        self.server = SecureServer(rules, list(inputs))
        self.rules = rules
        self.stored: dict[int, bytes] = {}
        self.sent: dict[str, dict[int, Any]] = {}

    def run(self) -> Total:
        *_, total = self.stages()
        return total

    def stages(self) -> Iterator[Any]:
        requests: dict[int, Any] = self.server.begin()
        for stage, step in (
            ("join", self.server.introduce),
            ("share", self.server.deliver),
            ("mask", self.server.collect),
            ("open", self.server.finish),
        ):
            answers = {id: self._answer(stage, id, request) for id, request in requests.items()}
            kept = {id: answer for id, answer in answers.items() if id not in self.silent.get(stage, ())}
            self.sent[stage] = kept
            requests = step(kept.items())  # type: ignore[operator]
            yield requests

    def _answer(self, stage: str, id: int, request: Any) -> Any:
        request = type(request)(**asdict(request))
        if stage == "join":
            client, answer = SecureClient.join(id, request)
        else:
            before = SecureClient.load(self.stored[id])
            more = self.inputs[id] if stage == "mask" else ()
            client, answer = getattr(before, stage)(request, *more)
        self.stored[id] = client.dump()
        return type(answer)(**asdict(answer))


def assert_sum_of(total: Total, inputs: Inputs, clients: Collection[int], rules: Rules) -> None:
    assert total.clients == sorted(clients)
    assert total.weight == sum(inputs[id][0] for id in clients)
    plain = np.sum([inputs[id][0] * inputs[id][1] for id in clients], axis=0)
    assert np.abs(total.mean - plain / total.weight).max(initial=0) < rules.step
    exact = np.sum([encode(rules, *inputs[id])[1:] for id in clients], axis=0)
    np.testing.assert_array_equal(total.sums, exact * rules.step)


def test_the_secure_sum_equals_the_plain_one_to_its_quantisation() -> None:
    inputs = some_inputs(range(5), 1000)
    rules = rules_for(inputs)
    total = secure_sum(rules, inputs, ((id, weight, values) for id, (weight, values) in inputs.items()))
    assert_sum_of(total, inputs, inputs, rules)


@settings(max_examples=12)
@given(
    ids=st.sets(st.integers(0, 2**64 - 1), min_size=2, max_size=6),
    length=st.integers(0, 20),
    bits=st.integers(2, 40),
    range_=st.floats(1e-6, 1e6),
    neighbours=st.integers(0, 6),
    seed=st.integers(0, 1000),
)
def test_any_ids_lengths_and_quantisations(
    ids: set[int], length: int, bits: int, range_: float, neighbours: int, seed: int
) -> None:
    inputs = {id: (weight, values * range_) for id, (weight, values) in some_inputs(ids, length, seed).items()}
    rules = rules_for(inputs, bits=bits, range=range_, neighbours=neighbours)
    assert_sum_of(Session(rules, inputs).run(), inputs, ids, rules)


@pytest.mark.parametrize(
    "silent",
    [
        {"join": {3}},
        {"share": {3}},
        {"mask": {3}},
        {"open": {3}},
        {"mask": {0, 6}},
        {"join": {0}, "share": {1}},
        {"share": {1}, "mask": {2}},
        {"mask": {2}, "open": {3}},
    ],
    ids=str,
)
@pytest.mark.parametrize("neighbours", [0, 4], ids=["all", "ring"])
def test_clients_may_drop_out_at_any_stage(silent: dict[str, set[int]], neighbours: int) -> None:
    inputs = some_inputs(range(7), 50)
    rules = rules_for(inputs, neighbours=neighbours, threshold=0.51)
    early = set().union(*(silent.get(stage, set()) for stage in ("join", "share", "mask")))
    assert_sum_of(Session(rules, inputs, silent).run(), inputs, set(inputs) - early, rules)


@pytest.mark.parametrize("stage", ["join", "share", "mask", "open"])
def test_below_the_threshold_the_round_fails_with_a_sentence(stage: str) -> None:
    inputs = some_inputs(range(6), 5)
    assert Session(rules_for(inputs), inputs, {stage: {0, 1}}).run().weight > 0
    with pytest.raises(SecureAggregationError, match=r"failed: 3 of 6 clients sent .*, 4 are needed"):
        Session(rules_for(inputs), inputs, {stage: {0, 1, 2}}).run()


def test_the_server_never_holds_an_unmasked_update() -> None:
    inputs = some_inputs(range(5), 400)
    rules = rules_for(inputs)
    session = Session(rules, inputs, {"mask": {1}})
    secret = {id: encode(rules, *value) for id, value in inputs.items()}
    held = 0
    for _ in session.stages():
        for vector in vectors_within(session.server, rules):
            held += 1
            for id, numbers in secret.items():
                for plain in (numbers, numbers // max(1, numbers[0])):
                    alike = np.mean(vector == plain.astype(rules.word))
                    assert alike < 0.05, f"the server holds the update of client {id}"
    assert held >= 4, "the search must have found the server's own sum at every stage"
    # The same search finds an update where there is one.
    session.server.planted = {"deep": [secret[0].astype(rules.word).tobytes()]}  # type: ignore[attr-defined]
    assert any(np.array_equal(v, secret[0].astype(rules.word)) for v in vectors_within(session.server, rules))


def vectors_within(thing: object, rules: Rules) -> Iterator[NDArray[Any]]:
    """Everything of a vector's length that an object refers to, however deeply: arrays and bytes."""
    seen: set[int] = set()
    waiting: list[object] = [thing]
    size = (rules.length + 1) * rules.word.itemsize
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType | types.FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray) and one.nbytes == size:
            yield np.frombuffer(one.tobytes(), rules.word)
        elif isinstance(one, bytes) and len(one) == size:
            yield np.frombuffer(one, rules.word)
        waiting += gc.get_referents(one)


def test_masked_vectors_look_like_noise() -> None:
    inputs = {id: (1, np.full(4000, 0.25)) for id in range(3)}
    rules = rules_for(inputs)
    session = Session(rules, inputs)
    session.run()
    vectors = [np.frombuffer(message.words, rules.word)[1:] for message in session.sent["mask"].values()]
    for vector in vectors:
        uniform = vector.astype(np.float64) / 2.0 ** (8 * rules.word.itemsize)
        assert stats.kstest(uniform, "uniform").pvalue > 1e-4
        assert len(np.unique(vector)) > 3990
    assert abs(np.corrcoef(vectors[0].astype(float), vectors[1].astype(float))[0, 1]) < 0.1


def test_words_are_as_short_as_no_sum_can_overflow_and_longer_sums_are_refused() -> None:
    assert Rules(100, 1, range=1.0, bits=24).word.itemsize == 4
    assert Rules(100, 1, range=1.0, bits=24, max_weight=10**6).word.itemsize == 8
    with pytest.raises(ConfigError, match="could overflow 64 bits"):
        Rules(100, 1, range=1.0, bits=40, max_weight=10**6)
    # Right at the edge of 32 bits, with both signs.
    for sign in (-1.0, 1.0):
        inputs = {id: (1, np.array([sign])) for id in range(2)}
        rules = Rules(2, 1, range=1.0, bits=31)
        assert rules.word.itemsize == 4
        assert secure_sum(rules, inputs, ((id, *value) for id, value in inputs.items())).sums[0] == 2 * sign


def test_quantising_never_makes_a_norm_grow() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    rules = Rules(2, 1000, range=5.0, bits=8)
    assert np.linalg.norm(encode(rules, 1, values)[1:] * rules.step) <= np.linalg.norm(values)


@pytest.mark.parametrize(
    ("weight", "values", "sentence"),
    [
        (1, [1.5], "holds the number 1.5; at most 1"),
        (1, [np.nan], "holds the number nan"),
        (1001, [0.5], "weight 1001; at most 1000"),
        (1, [0.5, 0.5], "2 numbers; 1 were agreed"),
    ],
)
def test_a_client_refuses_numbers_outside_the_rules(weight: int, values: list[float], sentence: str) -> None:
    with pytest.raises(SecureAggregationError, match=sentence):
        encode(Rules(2, 1, range=1.0, max_weight=1000), weight, np.array(values))


class Tampered(Session):
    """A sum in which the answers of one stage are changed on the way."""

    def __init__(self, stage: str, change: Any) -> None:
        inputs = some_inputs(range(4), 5)
        super().__init__(rules_for(inputs), inputs, {"mask": {2}} if stage == "open" else None)
        self.stage, self.change = stage, change

    def _answer(self, stage: str, id: int, request: Any) -> Any:
        answer = super()._answer(stage, id, request)
        return self.change(answer) if stage == self.stage and id == 1 else answer


def flipped(data: bytes, place: int = -20) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("stage", "change", "sentence"),
    [
        ("join", lambda m: replace(m, mask_key=b"no key"), "can't be used"),
        ("share", lambda m: replace(m, sealed=[flipped(s) for s in m.sealed]), "were changed on the way"),
        ("share", lambda m: replace(m, sealed=m.sealed[::-1]), "were changed on the way"),
        ("share", lambda m: replace(m, receivers=m.receivers[:1]), "did not send a share to each"),
        ("share", lambda m: replace(m, commitment=bytes(32)), "seed was changed"),
        ("mask", lambda m: MaskedVector(m.words[:-1]), "another length"),
        ("open", lambda m: replace(m, shares=[flipped(s) for s in m.shares]), "changed"),
        ("open", lambda m: OpenedShares(m.owners, m.shares[:-1]), "do not take part"),
    ],
)
def test_a_message_that_was_changed_is_refused(stage: str, change: Any, sentence: str) -> None:
    with pytest.raises(SecureAggregationError, match=sentence):
        Tampered(stage, change).run()


def clients_before(stage: str) -> tuple[dict[int, SecureClient], dict[int, Any]]:
    inputs = some_inputs(range(4), 5)
    session = Session(rules_for(inputs), inputs)
    steps = ["share", "mask", "open"].index(stage)
    requests = next(itertools.islice(session.stages(), steps, None))
    return {id: SecureClient.load(stored) for id, stored in session.stored.items()}, requests


def test_a_client_gives_no_shares_that_would_lay_a_single_update_open() -> None:
    clients, requests = clients_before("open")
    everybody = requests[0].alive
    for request in (
        Unmask(everybody, [1]),  # both secrets of one client
        Unmask([0], [1, 2, 3]),  # too few alive
        Unmask([1, 2, 3], [0]),  # itself among the dropped
        Unmask([0, 1, 2], []),  # somebody left out
    ):
        with pytest.raises(SecureAggregationError, match=r"gives none|are needed"):
            clients[0].open(request)
    done, _ = clients[0].open(requests[0])
    with pytest.raises(SecureAggregationError, match="no step is taken twice"):
        done.open(requests[0])


def test_a_client_wants_enough_neighbours_and_no_strangers() -> None:
    clients, requests = clients_before("mask")
    inbox, values = requests[0], np.zeros(5)
    with pytest.raises(SecureAggregationError, match="2 of its group are left, 3 are needed"):
        clients[0].mask(Inbox(inbox.senders[:1], inbox.sealed[:1]), 1, values)
    with pytest.raises(SecureAggregationError, match="no neighbours"):
        clients[0].mask(Inbox([*inbox.senders, 9], [*inbox.sealed, b""]), 1, values)
    other = requests[1].sealed[requests[1].senders.index(2)]  # from 2 to 1, handed to 0
    with pytest.raises(SecureAggregationError, match="changed on the way"):
        clients[0].mask(Inbox([2, *inbox.senders[:1]], [other, inbox.sealed[0]]), 1, values)
    starting, hoods = clients_before("share")
    with pytest.raises(SecureAggregationError, match="not all different"):
        starting[0].share(replace(hoods[0], mask_keys=[hoods[0].mask_keys[0]] * 3))


def test_answers_of_strangers_are_refused_and_one_client_is_no_sum() -> None:
    rules = Rules(2, 1, range=1.0)
    server = SecureServer(rules, [0, 1])
    with pytest.raises(SecureAggregationError, match="not due"):
        server.introduce([(id, SecureClient.join(id, rules)[1]) for id in (0, 1, 2)])
    with pytest.raises(SecureAggregationError, match="not due"):
        server.collect([(0, MaskedVector(b""))])
    with pytest.raises(SecureAggregationError, match="at least two clients"):
        Rules(1, 1, range=1.0)
    with pytest.raises(ConfigError, match="above a half"):
        Rules(4, 1, range=1.0, threshold=0.5)
    with pytest.raises(SecureAggregationError, match="for 2 clients; got 1"):
        SecureServer(rules, [4])


def test_a_ring_gives_everybody_as_many_neighbours_both_ways() -> None:
    inputs = some_inputs(range(12), 3)
    session = Session(rules_for(inputs, neighbours=4), inputs)
    hoods = next(session.stages())
    assert {len(hood.neighbours) for hood in hoods.values()} == {4}
    assert all(id in hoods[other].neighbours for id, hood in hoods.items() for other in hood.neighbours)
    shares = session.sent["join"]
    assert len({key.mask_key for key in shares.values()}) == 12


def test_every_sum_has_new_keys_and_masks() -> None:
    inputs = some_inputs(range(2), 3)
    first, second = Session(rules_for(inputs), inputs), Session(rules_for(inputs), inputs)
    np.testing.assert_array_equal(first.run().sums, second.run().sums)
    assert first.sent["join"][0] != second.sent["join"][0]
    assert first.sent["mask"][0] != second.sent["mask"][0]
    assert isinstance(first.sent["share"][0], SealedShares)


def test_secrets_are_not_printed() -> None:
    client, _ = SecureClient.join(7, Rules(2, 1, range=1.0))
    assert client.seed.hex() not in repr(client)
    assert str(client.seed) not in repr(client)
