"""Who is left out by an aggregation is left out of what clients share for their method, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from fedpu.aggregation import AGGREGATIONS, ServerState
from fedpu.algorithm import Round, rounds
from fedpu.applications.prepared import prepare
from fedpu.applications.training import first_state, job_of, serving_of
from fedpu.config import Config
from fedpu.engine import Clients
from fedpu.round import Broadcast, Update, Work

LIAR = 3


class Lying(Clients):
    """Clients of an engine, one of which turns its update around and shares nonsense; all that is sent is kept."""

    trusted = False

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.sent: list[Update] = []

    def update(self, sent: Broadcast, work: Sequence[Work], each: bool = True) -> Iterator[Update]:
        self.sent = [self._claimed(update, sent) for update in self._clients.update(sent, work)]
        yield from self.sent

    def _claimed(self, update: Update, sent: Broadcast) -> Update:
        if update.client != LIAR:
            return update
        turned = {name: 2 * sent.model[name] - value for name, value in update.model.items()}
        return replace(update, model=turned, shared={name: value + 100 for name, value in update.shared.items()})


def played(config: Config) -> Iterator[tuple[Round, ServerState, list[Update]]]:
    """Yield each round, the state before it, and all that was sent."""
    sets = [[(k + step) % 10 for step in range(3)] for k in range(10)]
    config = config.with_(
        "partition.clients=10", f"labelling.positive={sets}", "labelling.overlap=true", "aggregation.batch_size=20",
        "aggregation.norm_bound=0", "model.hidden=[32]",
    )  # fmt: skip
    job = job_of(config, prepare(config).federation)
    state = first_state(config, job.initial_model(), 10, 10)
    serving = serving_of(config, job.initial_model(), (1, 8, 8))
    with config.engine.start(job) as clients:
        lying = Lying(clients)
        for done in rounds(lying, config.aggregation, state, config.seed, serving=serving):
            yield done, state, lying.sent
            state = done.state


def mean_of(updates: list[Update], name: str) -> torch.Tensor:
    examples = torch.tensor([float(update.examples) for update in updates], dtype=torch.float64)
    return torch.stack([update.shared[name].double() for update in updates]).T @ examples / examples.sum()


def test_agreement_leaves_a_liar_out_of_what_is_shared(tiny_config: Config) -> None:
    config = tiny_config.with_("method.name=aligned", "aggregation.name=agreement", "aggregation.rounds=10")
    found = False
    for done, _, sent in played(config):
        out = {int(name) for name, told in done.cut.items() if "left out" in told}
        taken = [update for update in sent if update.client not in out]
        for name, value in done.state.shared.items():
            torch.testing.assert_close(value.double(), mean_of(taken, name), rtol=1e-5, atol=1e-6)
        if LIAR in out:
            found = True
            assert all(float(value.abs().max()) < 50 for value in done.state.shared.values())
    assert found, "the liar was left out in some round"


def test_and_of_what_the_server_remembers_for_the_method(tiny_config: Config) -> None:
    config = tiny_config.with_("method.name=fedmatch", "aggregation.name=agreement", "aggregation.rounds=10")
    found = False
    for done, before, _ in played(config):
        out = {int(name) for name, told in done.cut.items() if "left out" in told}
        for k in range(10):
            mine, earlier = (
                {name: value for name, value in memory.items() if name.startswith(f"{k}.")}
                for memory in (done.state.memory, before.memory)
            )
            same = mine.keys() == earlier.keys() and all(torch.equal(mine[name], earlier[name]) for name in mine)
            assert same == (k in out), f"client {k}, round {done.number}"
        found = found or LIAR in out
    assert found, "the liar was left out in some round"


@pytest.mark.parametrize(
    ("name", "liar"),
    [
        ("agreement", 0.0),
        ("multi-krum", 0.0),
        ("geometric-median", 0.05),
        ("centred-clipping", 0.05),
        ("trimmed-mean", 0.05),
    ],
)
def test_every_rule_says_how_much_an_update_counted(name: str, liar: float) -> None:
    rule, generator = AGGREGATIONS[name](), torch.Generator().manual_seed(0)
    state = ServerState(0, {"w": torch.zeros(20)}, clients=7)
    state = replace(state, extras=rule.start_server(state))
    for _ in range(5):
        near = torch.ones(20) + 0.3 * torch.randn(7, 20, generator=generator)
        near[LIAR] = -50
        updates = [Update(k, 10, {"w": state.model["w"] + row}, {}) for k, row in enumerate(near)]
        state = rule.combine(state, updates)
    assert state.counted[LIAR] <= liar
    honest = [state.counted.get(k, 1.0) for k in range(7) if k != LIAR]
    assert min(honest) > 0.4
    assert all(0 <= part < 1 for part in state.counted.values())


def test_where_nobody_is_judged_everybody_counts() -> None:
    rule = AGGREGATIONS["fedavg"]()
    state = ServerState(0, {"w": torch.zeros(2)}, clients=2, counted={1: 0.0})
    assert rule.combine(state, [Update(k, 10, {"w": torch.ones(2)}, {}) for k in range(2)]).counted == {}
    assert not rule.judges
