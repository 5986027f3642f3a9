"""The server's side of privacy on nodes, with an exchange that is only watched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from flwr.app import RecordDict

from fedpu.applications.training import guard_of
from fedpu.config import Config
from fedpu.data import Normalisation
from fedpu.deploy.guard import NegativeClasses, ProtectedNodes, summed_negative_classes
from fedpu.deploy.protocol import pack_part
from fedpu.engine import FlowerEngine
from fedpu.errors import LabellingError, TrainingError
from fedpu.flower.exchange import Exchange
from fedpu.privacy import lent_weight, protect_negatives
from fedpu.record import Members, ModelCard
from fedpu.risk import co_negatives
from fedpu.round import Broadcast, Work

POSITIVE = torch.tensor([[True, False, False], [False, True, False], [False, True, True]])
SIZES = [10, 250, 40]


class Watched(Exchange):
    """Answers of nodes to whatever they are asked, and a note of who was asked."""

    def __init__(self, answers: dict[int, RecordDict] | None = None) -> None:
        self.contents = answers or {}
        self.asked: list[str] = []
        self.left_out: dict[str, str] = {}
        self.rules = FlowerEngine()

    def ask(self, kind: str, contents: dict[int, RecordDict], group: str) -> Any:
        self.asked.append(kind)
        return iter([(client, self.contents[client]) for client in contents])

    def leave_out(self, client: int, reason: str) -> None:
        self.left_out["xyz"[client]] = reason


@pytest.mark.parametrize("drawn", [[], [3]], ids=["nobody", "one client"])
def test_a_draw_that_is_too_small_for_a_secure_sum_asks_nobody_and_adds_noise(
    tiny_config: Config, drawn: list[int]
) -> None:
    config = tiny_config.with_(
        "privacy.differential=central", "privacy.secure_aggregation=true", "aggregation.participation=0.2"
    )
    network = config.model.build((1, 8, 8), 10)
    guard, exchange = guard_of(config, network, 5, 10), Watched()
    assert guard is not None
    clients = ProtectedNodes(guard, exchange, lambda content: None)
    sent = Broadcast({name: value.detach() for name, value in network.state_dict().items()}, round=2)
    [update] = clients.update(sent, [Work(client, 2, 0.1) for client in drawn])
    assert exchange.asked == []
    assert update.clients == 0
    assert update.divisor == guard.expected
    assert all(torch.equal(update.model[name], value) for name, value in guard.noise(sent).model.items())
    assert any(not torch.equal(update.model[name], value) for name, value in sent.model.items())


def negatives(
    config: Config, by_size: bool, weights: list[int] | None = None, changed: dict[int, RecordDict] | None = None
) -> NegativeClasses:
    negative = (~POSITIVE).double().numpy()
    counts = weights or [lent_weight(config.privacy, size, by_size) for size in SIZES]
    parts = {k: pack_part(counts[k], protect_negatives(config.privacy, row, 0, k)) for k, row in enumerate(negative)}
    hidden = config.privacy.on
    card = ModelCard((4,), "float32", ("a", "b", "c"), Normalisation(1.0, (0.0,), (1.0,)))
    members = Members(["x", "y", "z"], None if hidden else SIZES, card, None)
    exchange = Watched(parts | (changed or {}))
    return summed_negative_classes(config.privacy, exchange, RecordDict(), members, 0, by_size)


def test_the_sum_of_negative_classes_counts_clients_as_in_one_process(tiny_config: Config) -> None:
    assert torch.equal(negatives(tiny_config, by_size=False).total, co_negatives(POSITIVE))
    assert torch.equal(negatives(tiny_config, by_size=True).total, co_negatives(POSITIVE, torch.tensor(SIZES)))
    private = tiny_config.with_("privacy.differential=central", "privacy.lent_noise_multiplier=0")
    assert torch.equal(negatives(private, by_size=True).total, negatives(private, by_size=False).total)


BAD_PARTS = {
    "counted often": pack_part(7, np.zeros(9)),
    "no outer product": pack_part(1, np.arange(9.0)),
    "NaN": pack_part(1, np.full(9, np.nan)),
    "too short": pack_part(1, np.zeros(8)),
    "something else": RecordDict(),
}


@pytest.mark.parametrize("part", BAD_PARTS.values(), ids=BAD_PARTS)
def test_a_bad_part_of_the_first_sum_costs_its_client_and_not_the_start(tiny_config: Config, part: RecordDict) -> None:
    found = negatives(tiny_config, by_size=False, changed={1: part})
    assert found.clients == [0, 2]
    assert torch.equal(found.total, co_negatives(POSITIVE[[0, 2]]))


def test_a_node_that_counts_itself_otherwise_than_it_has_told_is_left_out(tiny_config: Config) -> None:
    found = negatives(tiny_config, by_size=True, weights=[10, 10_000, 40])
    assert found.clients == [0, 2]
    assert torch.equal(found.total, co_negatives(POSITIVE[[0, 2]], torch.tensor(SIZES)[[0, 2]]))


def test_whoever_alone_labels_a_class_is_missed_and_too_few_parts_are_no_sum(tiny_config: Config) -> None:
    bad = pack_part(7, np.zeros(9))
    with pytest.raises(LabellingError, match=r"Nobody labels class 0: .* x: it counts itself 7 times"):
        negatives(tiny_config, by_size=False, changed={0: bad})
    with pytest.raises(TrainingError, match=r"has 0 usable parts, and engine\.min_clients is 1\. x: .* z: "):
        negatives(tiny_config, by_size=False, changed={0: bad, 1: bad, 2: bad})


@pytest.mark.parametrize("differential", ["central", "local"])
def test_under_differential_privacy_a_client_counts_once_and_within_its_bound(
    tiny_config: Config, differential: str
) -> None:
    config = tiny_config.with_(f"privacy.differential={differential}", "privacy.clip=1", "privacy.noise_multiplier=1")
    network = config.model.build((1, 8, 8), 10)
    guard = guard_of(config, network, 3, 10)
    assert guard is not None
    small, length = 1e-3, guard.layout.length
    parts = {k: pack_part(1, np.full(length, small)) for k in range(3)}
    lies = {
        "fifty times": pack_part(50, np.full(length, small)),
        "a number of 1e300": pack_part(1, np.eye(1, length)[0] * 1e300),
        "NaN": pack_part(1, np.full(length, np.nan)),
    }
    sent = Broadcast({name: value.detach() for name, value in network.state_dict().items()}, round=0)
    for lie in lies.values():
        exchange = Watched(parts | {1: lie})
        [update] = ProtectedNodes(guard, exchange, lambda content: None).update(
            sent, [Work(k, 0, 0.1) for k in range(3)]
        )
        assert update.clients == 2
        assert exchange.left_out.keys() == {"y"}
        assert all(bool(torch.isfinite(value).all()) for value in update.model.values())
