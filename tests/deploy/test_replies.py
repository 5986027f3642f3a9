"""Clients that lie: whatever a reply holds costs its sender the round, is named, and never ends the run."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata

from fedpu.deploy import secure_client
from fedpu.deploy.protocol import (
    CLIENT,
    COUNTS,
    PART,
    SECURE,
    SECURE_JOIN,
    SECURE_OPEN,
    SECURE_SHARE,
    Briefing,
    Presence,
    pack_part,
)
from fedpu.deploy.roster import Roster
from fedpu.deploy.sums import plain_sum, secure_sum
from fedpu.engine import FlowerEngine
from fedpu.engine.flower.clients import NodeClients, Promised
from fedpu.engine.validate import Expected
from fedpu.errors import TrainingError
from fedpu.flower.exchange import Exchange, ask
from fedpu.flower.grid import pull_message
from fedpu.flower.messages import MODEL, RISK, pack_tensors, pack_update
from fedpu.flower.private import ObjectPullError
from fedpu.flower.replies import BadReply
from fedpu.flower.wire import Request, Wire
from fedpu.privacy.secagg import Rules, SecureAggregationError
from fedpu.round import Broadcast, Tensors, Update, Work

SENT = {"w": torch.ones(2, 3), "b": torch.zeros(3), "steps": torch.tensor(4)}
EXAMPLES = [10, 20, 30]
LIAR = 1


def honest(client: int) -> RecordDict:
    model = {"w": torch.ones(2, 3) + client, "b": torch.zeros(3), "steps": torch.tensor(5)}
    return pack_update(Update(client, EXAMPLES[client], model, {}), report_risk=False)


class Answering(Exchange):
    """Nodes that answer what they are told to answer."""

    def __init__(self, answers: dict[int, Any]) -> None:
        super().__init__(Nobody(), FlowerEngine(), dict)
        self.contents = answers

    def ask(self, kind: str, contents: Any, group: str) -> Any:
        return iter([(client, self.contents[client]) for client in contents])


class Nobody(Wire):
    def nodes(self) -> list[int]:
        return []

    def push(self, requests: Sequence[Request]) -> list[str | None]:
        return [None for _ in requests]

    def pull(self, numbers: Iterable[str]) -> list[Message]:
        return []


def with_counts(record: Any) -> Callable[[RecordDict], None]:
    return lambda reply: reply.update({"counts": record})


def with_model(change: Callable[[Tensors], Tensors]) -> Callable[[RecordDict], None]:
    def apply(reply: RecordDict) -> None:
        model = {"w": torch.ones(2, 3), "b": torch.zeros(3), "steps": torch.tensor(5)}
        reply[MODEL] = pack_tensors({f"model.{name}": value for name, value in change(model).items()})

    return apply


def with_record(name: str, record: Any) -> Callable[[RecordDict], None]:
    return lambda reply: reply.update({name: record})


HOSTILE: dict[str, tuple[Callable[[RecordDict], Any], str]] = {
    "more examples than it joined with": (with_counts(MetricRecord({"examples": 21})), "it joined with 20"),
    "10^12 examples": (with_counts(MetricRecord({"examples": 10**12})), "whole number"),
    "infinitely many examples": (with_counts(MetricRecord({"examples": math.inf})), "inf; it should be a whole"),
    "NaN examples": (with_counts(MetricRecord({"examples": math.nan})), "nan"),
    "no examples": (with_counts(MetricRecord({"examples": 0})), "whole number"),
    "minus twenty examples": (with_counts(MetricRecord({"examples": -20})), "-20"),
    "20.0 examples": (with_counts(MetricRecord({"examples": 20.0})), "20.0"),
    "a list of examples": (with_counts(MetricRecord({"examples": [20]})), r"\[20\]"),
    "a text of examples": (with_counts(ConfigRecord({"examples": "20"})), "'20'"),
    "true examples": (with_counts(ConfigRecord({"examples": True})), "True"),
    "bytes of examples": (with_counts(ConfigRecord({"examples": b"20"})), "b'20'"),
    "counts of another kind": (with_counts(ArrayRecord({"examples": Array(np.ones(1))})), "whole number"),
    "no counts": (lambda reply: reply.pop("counts"), "has no 'counts'"),
    "more counts": (with_counts(MetricRecord({"examples": 20, "weight": 9})), "'weight' is in only one"),
    "no model": (lambda reply: reply.pop(MODEL), "has no 'model'"),
    "a model that is no archive": (with_record(MODEL, ConfigRecord({MODEL: b"\x00" * 9})), "can't be read"),
    "a model that is a number": (with_record(MODEL, ConfigRecord({MODEL: 3})), "can't be read"),
    "a model that is a list": (with_record(MODEL, ConfigRecord({MODEL: [1.0]})), "can't be read"),
    "an archive with a huge head": (with_record(MODEL, ConfigRecord({MODEL: b"\xff" * 64})), "can't be read"),
    "an array of objects": (
        with_record(MODEL, ArrayRecord({MODEL: Array("object", (1,), "numpy.ndarray", b"\x80\x04N.")})),
        "can't be read",
    ),
    "a tensor too few": (with_model(lambda model: {"w": model["w"]}), "in only one"),
    "a tensor too many": (with_model(lambda model: model | {"mine": torch.ones(1)}), "'mine' is in only one"),
    "a tensor of no group": (
        with_record(MODEL, ConfigRecord({MODEL: safetensors.torch.save({"x": torch.ones(1)})})),
        "not asked for",
    ),
    "another shape": (with_model(lambda model: model | {"w": torch.ones(3, 2)}), r"shape \(3, 2\)"),
    "a shape that could be stretched": (with_model(lambda model: model | {"b": torch.zeros(1)}), r"shape \(1,\)"),
    "another type": (with_model(lambda model: model | {"b": torch.zeros(3).double()}), "float64"),
    "half precision": (with_model(lambda model: model | {"b": torch.zeros(3).half()}), "float16"),
    "complex numbers": (with_model(lambda model: model | {"b": torch.zeros(3, dtype=torch.complex64)}), "complex64"),
    "NaN": (with_model(lambda model: model | {"b": torch.full((3,), math.nan)}), "NaN"),
    "infinity": (with_model(lambda model: model | {"b": torch.full((3,), -math.inf)}), "NaN or infinite"),
    "3e38": (with_model(lambda model: model | {"b": torch.full((3,), 3e38)}), r"3e\+38"),
    "a counter at its end": (with_model(lambda model: model | {"steps": torch.tensor(2**62)}), "'steps'"),
    "unasked terms": (with_record(RISK, MetricRecord({"mine": 1.0})), "'risk', which was not asked for"),
    "an unasked record": (with_record("gift", ConfigRecord({"x": b"0" * 10**6})), "'gift', which was not asked"),
    "a record with a name for a terminal": (with_record("\x1b[2J", ConfigRecord({})), "not asked for"),
    "nothing at all": (lambda reply: reply.clear(), "has no 'counts'"),
}


@pytest.mark.parametrize(("lie", "told"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_reply_costs_its_sender_the_round(lie: Callable[[RecordDict], Any], told: str) -> None:
    replies = {client: honest(client) for client in range(3)}
    lie(replies[LIAR])
    exchange = Answering(replies)
    clients = NodeClients(exchange, lambda content: None, Promised(Expected({}, {}), EXAMPLES, report_risk=False))
    updates = list(clients.update(Broadcast(SENT), [Work(client, 0, 0.1) for client in range(3)]))
    assert [update.client for update in updates] == [0, 2]
    assert exchange.left_out.keys() == {str(LIAR)}
    reason = exchange.left_out[str(LIAR)]
    assert re.search(told, reason), reason
    assert len(reason) < 400
    assert "\x1b" not in reason


TERMS: dict[str, Any] = {
    "infinite": MetricRecord({"total": math.inf}),
    "NaN": MetricRecord({"total": math.nan}),
    "3e38": MetricRecord({"total": 3e38}),
    "a list": MetricRecord({"total": [1.0]}),
    "a text": ConfigRecord({"total": "1"}),
    "too many": MetricRecord({f"t{k}": 1.0 for k in range(100)}),
    "a name for a terminal": MetricRecord({"\x1b[2J": 1.0}),
    "a very long name": MetricRecord({"x" * 10**5: 1.0}),
}


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_terms_that_were_asked_for_must_be_numbers_under_sane_names(terms: Any) -> None:
    reply = honest(LIAR)
    reply[RISK] = terms
    exchange = Answering({0: honest(0), LIAR: reply})
    clients = NodeClients(exchange, lambda content: None, Promised(Expected({}, {}), EXAMPLES, report_risk=True))
    updates = list(clients.update(Broadcast(SENT), [Work(client, 0, 0.1) for client in (0, LIAR)]))
    assert [update.client for update in updates] == [0]
    assert len(exchange.left_out[str(LIAR)]) < 700


PARTS: dict[str, Any] = {
    "fifty times": pack_part(50, np.zeros(4)),
    "never": pack_part(0, np.zeros(4)),
    "minus once": pack_part(-1, np.zeros(4)),
    "infinitely often": RecordDict({PART: ConfigRecord({"weight": math.inf, "values": bytes(32)})}),
    "a list of times": RecordDict({PART: ConfigRecord({"weight": [1], "values": bytes(32)})}),
    "too short": pack_part(1, np.zeros(3)),
    "half a number": RecordDict({PART: ConfigRecord({"weight": 1, "values": bytes(31)})}),
    "a list for bytes": RecordDict({PART: ConfigRecord({"weight": 1, "values": [0.0] * 32})}),
    "NaN": pack_part(1, np.full(4, math.nan)),
    "1e308": pack_part(1, np.full(4, 1e308)),
    "a gift": RecordDict({**pack_part(1, np.zeros(4)), "gift": ConfigRecord({"x": b"0" * 10**6})}),
    "nothing": RecordDict(),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_hostile_part_of_a_sum_is_left_out(part: RecordDict) -> None:
    def once(client: int, weight: int, values: Any) -> str | None:
        return None if weight == 1 and np.abs(values).max() <= 1 else "too much"

    exchange = Answering({0: pack_part(1, np.ones(4)), LIAR: part, 2: pack_part(1, np.ones(4))})
    total = plain_sum(exchange, "query.negatives", dict.fromkeys(range(3), RecordDict()), 4, "", once)
    assert (total.weight, total.clients, total.values.tolist()) == (2, 2, [2.0] * 4)
    assert exchange.left_out.keys() == {str(LIAR)}


# What a node says when it joins.

PRESENCE = Presence("north", 20, (1, 8, 8), "uint8", ("a", "b")).to_records()
JOINING: dict[str, tuple[str, Any]] = {
    "10^12 examples": (COUNTS, MetricRecord({"examples": 10**12})),
    "infinitely many": (COUNTS, MetricRecord({"examples": math.inf})),
    "negative": (COUNTS, MetricRecord({"examples": -1})),
    "none": (COUNTS, MetricRecord({"examples": 0})),
    "a list": (COUNTS, MetricRecord({"examples": [20]})),
    "a text": (COUNTS, ConfigRecord({"examples": "20"})),
    "a gift": ("gift", ConfigRecord({"x": 1})),
    **{
        f"{key} {value!r:.20}": (CLIENT, ConfigRecord(dict(PRESENCE[CLIENT]) | {key: value}))  # type: ignore[call-overload]
        for key, values in {
            "name": ["", "../../x", "a,b", " ", "\x1b[2J", "x" * 101, b"north", 7],
            "shape": [[], [0], [-1, 8], [10**9], [10**4] * 4, [1] * 99, "8", [1.5]],
            "dtype": ["float64", 8, ["uint8"]],
            "classes": ["a", [1, 2], ["x" * 10**4]],
        }.items()
        for value in values
    },
}


@pytest.mark.parametrize(("name", "record"), JOINING.values(), ids=JOINING)
def test_absurd_words_at_joining_are_refused_with_a_sentence(name: str, record: Any) -> None:
    assert Presence.from_records(PRESENCE).examples == 20
    with pytest.raises(BadReply, match=r"should be|a name is|not asked for|no input has|can't be read"):
        Presence.from_records(RecordDict({**PRESENCE, name: record}))


# Messages: who has sent them, and whether there is one at all.


def reply_to(number: str, content: RecordDict | Error, node: int) -> Message:
    about = Metadata(1, f"reply-{number}", node, 1, number, "", time.time(), 60.0, "train")
    return make_message(about, error=content) if isinstance(content, Error) else make_message(about, content)


class Line(Wire):
    """A wire on which replies are waiting; ``names`` are those under which nodes were registered."""

    def __init__(self, joins: dict[int, Any], names: dict[int, str] | None = None) -> None:
        self.joins = joins
        self.here = list(joins)
        self.registered = names or {}
        self.sent = 0
        self.waiting: dict[str, Message] = {}

    def nodes(self) -> list[int]:
        return self.here

    def names(self) -> dict[int, str]:
        return self.registered

    def push(self, requests: Sequence[Request]) -> list[str | None]:
        numbers = []
        for request in requests:
            self.sent += 1
            numbers.append(str(self.sent))
            self.waiting[numbers[-1]] = reply_to(numbers[-1], self.joins[request.node], request.node)
        return list(numbers)

    def pull(self, numbers: Iterable[str]) -> list[Message]:
        return [self.waiting.pop(number) for number in numbers if number in self.waiting]


def presence(name: str, examples: int = 20) -> RecordDict:
    return Presence(name, examples, (4,), "float32", ("a", "b")).to_records()


def roster(line: Line, told: list[str]) -> Roster:
    return Roster(line, FlowerEngine(wait=0.3), Briefing("seed = 1\n"), told.append)


def test_a_node_that_calls_itself_by_anothers_name_is_refused_and_named() -> None:
    told: list[str] = []
    line = Line(
        {5: presence("north"), 6: presence("north"), 7: presence("south")}, {5: "mallory", 6: "north", 7: "south"}
    )
    members = roster(line, told)
    assert members.locate(["north", "south"]) == {0: 6, 1: 7}
    assert told == ["Node 5 can't take part: it calls itself 'north', but its key was registered for 'mallory'."]
    line.here = [5, 7]
    assert members.locate(["north", "south"]) == {1: 7}, "not even while the other is away"


def test_a_key_without_a_name_takes_no_part_where_names_are_registered() -> None:
    told: list[str] = []
    assert roster(Line({5: presence("north")}, {5: ""}), told).locate(["north"]) == {}
    assert "registered without a name" in told[0]


def test_where_nobody_registers_names_a_second_node_of_one_name_is_refused_while_the_first_is_here() -> None:
    told: list[str] = []
    line = Line({5: presence("north"), 6: presence("north")})
    line.here = [5]
    members = roster(line, told)
    assert members.locate(["north"]) == {0: 5}
    line.here = [5, 6]
    assert members.locate(["north"]) == {0: 5}
    assert "node 5, which has another key, is here as 'north'" in told[0]


def test_a_refused_node_is_named_when_the_run_can_not_begin() -> None:
    line = Line({5: presence("north"), 6: presence("²" * 3), 7: Error(1000, "no\x1b[2J " * 500)}, {5: "south"})
    with pytest.raises(TrainingError, match="registered for 'south'") as refused:
        roster(line, []).gather(["north"])
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 2000
    assert [one.name for one in roster(Line({6: presence("²"), 7: presence("2")}), []).gather(2)] == ["2", "²"]


def test_a_number_of_examples_out_of_all_proportion_is_not_believed() -> None:
    told: list[str] = []
    joins = {5: presence("a", 20), 6: presence("b", 30), 7: presence("c", 10**9), 8: presence("d", 2000)}
    assert [one.name for one in roster(Line(joins), told).gather(3)] == ["a", "b", "d"]
    assert "'c' says that it has 1000000000 examples, and the median of the others is 30" in told[0]
    with pytest.raises(TrainingError, match=r"raise engine\.largest_client \(100\)"):
        roster(Line(joins), []).gather(["a", "c"])
    two = Line({5: presence("a", 20), 6: presence("b", 10**6)})
    generous = Roster(two, FlowerEngine(wait=0.3, largest_client=10**6), Briefing("seed = 1\n"), told.append)
    assert len(generous.gather(2)) == 2


def test_a_reply_of_another_node_or_to_nothing_counts_for_nothing() -> None:
    class Forged(Line):
        def pull(self, numbers: Iterable[str]) -> list[Message]:
            return [reply_to("unknown", RecordDict(), 5), *(reply_to(one, RecordDict(), 6) for one in numbers)]

    [(_, answer)] = ask(Forged({5: RecordDict()}), [Request(5, "train", RecordDict(), "", 1.0)])
    assert answer == "node 6 answered in its place"


def test_parts_of_which_no_message_can_be_made_are_a_reply_that_did_not_come() -> None:
    for content in (b"", b"Message 3 \x00", b"ConfigRecord 0 \x00", b"\xff" * 40):
        with pytest.raises(ObjectPullError):
            pull_message(["0" * 64], lambda _, content=content: content)  # type: ignore[misc]


# Secure sums: a client that cheats before its part is masked is left out, and what masks hide shows in the sum.


RULES = Rules(4, 3, 1.0)


class SecureNodes(Exchange):
    """Four clients with the node's own code, one of which changes what it sends in some stage."""

    def __init__(self, stage: str, lie: Callable[[dict[str, Any]], Any], weight: int = 1) -> None:
        super().__init__(Nobody(), FlowerEngine(), dict)
        self.contexts = {
            client: Context(run_id=1, node_id=client, node_config={}, state=RecordDict(), run_config={})
            for client in range(4)
        }
        self.stage, self.lie, self.weight = stage, lie, weight

    def ask(self, kind: str, contents: Any, group: str) -> Any:
        actions = {
            SECURE_JOIN: secure_client.join,
            SECURE_SHARE: secure_client.share,
            SECURE_OPEN: secure_client.open_shares,
        }
        for client, content in contents.items():
            where, own = self.contexts[client], secure_client.Identity(str(client), None, None)
            if kind in actions:
                reply = actions[kind](content, where, own)
            else:
                part = (1, np.full(3, 0.5))
                reply = secure_client.mask(content, where, own, "1", lambda _: RULES, lambda part=part: part)
            if client == LIAR and kind == self.stage:
                fields: dict[str, Any] = dict(reply[SECURE])  # type: ignore[call-overload]
                self.lie(fields)
                reply[SECURE] = ConfigRecord(fields)
            yield client, reply


SECURE_LIES: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "no key": (SECURE_JOIN, lambda fields: fields.update(mask_key=b"x")),
    "one key twice": (SECURE_JOIN, lambda fields: fields.update(mask_key=fields["seal_key"])),
    "a number for a key": (SECURE_JOIN, lambda fields: fields.update(mask_key=3)),
    "a key missing": (SECURE_JOIN, lambda fields: fields.pop("mask_key")),
    "shares for nobody": (SECURE_SHARE, lambda fields: fields.update(receivers=[], sealed=[])),
    "shares for strangers": (SECURE_SHARE, lambda fields: fields.update(receivers=[0, 2, 99])),
    "shares that are texts": (SECURE_SHARE, lambda fields: fields.update(sealed=["a", "b", "c"])),
    "no commitment": (SECURE_SHARE, lambda fields: fields.update(commitment=b"")),
    "a short vector": ("train.secure", lambda fields: fields.update(words=fields["words"][:-1])),
    "a vector of numbers": ("train.secure", lambda fields: fields.update(words=[1, 2, 3])),
    "shares of strangers": (SECURE_OPEN, lambda fields: fields.update(owners=[7, 8, 9, 10])),
    "fewer shares": (SECURE_OPEN, lambda fields: fields.update(owners=[], shares=[])),
}


@pytest.mark.parametrize(("stage", "lie"), SECURE_LIES.values(), ids=SECURE_LIES)
def test_a_client_that_cheats_in_a_secure_sum_is_left_out(stage: str, lie: Callable[[dict[str, Any]], Any]) -> None:
    nodes = SecureNodes(stage, lie)
    messages = {client: RecordDict() for client in range(4)}
    total = secure_sum(nodes, RULES, "train.secure", messages, "1")
    counted = 4 if stage == SECURE_OPEN else 3  # its vector was in the sum already
    assert (total.weight, total.clients) == (counted, counted)
    assert total.values == pytest.approx(0.5 * counted, abs=1e-5)
    assert nodes.left_out.keys() == {str(LIAR)}


@pytest.mark.parametrize("amount", [50, -4, 2**30], ids=["fifty times", "less than nothing", "very often"])
def test_a_client_that_counts_itself_more_than_once_under_masks_shows_in_the_sum(amount: int) -> None:
    def more(fields: dict[str, Any]) -> None:
        words = np.frombuffer(fields["words"], "<u4").copy()
        words[:1] += np.uint32(amount % 2**32)
        fields["words"] = words.tobytes()

    nodes = SecureNodes("train.secure", more)
    with pytest.raises(SecureAggregationError, match="One of them has sent something else, and masks hide which"):
        secure_sum(nodes, RULES, "train.secure", {client: RecordDict() for client in range(4)}, "1")
