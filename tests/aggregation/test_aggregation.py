"""Aggregations: whom they ask, what they ask, and how they combine the answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpu.aggregation import AGGREGATIONS, FedAvg, FedProx, FedSGD, ServerState, weighted_mean
from fedpu.algorithm import rounds
from fedpu.applications.experiment import run
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.engine import Job, LocalEngine
from fedpu.method import Batch
from fedpu.risk import co_negatives
from fedpu.round import Broadcast, Update
from fedpu.testing import check_aggregation


def update(client: int, examples: int, **model: torch.Tensor) -> Update:
    return Update(client, examples, model, {})


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(-5, 5)), min_size=1, max_size=20))
def test_the_mean_is_weighted_by_the_number_of_examples(clients: list[tuple[int, float]]) -> None:
    updates = [update(k, n, w=torch.full((2, 3), v)) for k, (n, v) in enumerate(clients)]
    expected = sum(n * v for n, v in clients) / sum(n for n, _ in clients)
    mean = weighted_mean(iter(updates))["w"]
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean, torch.full((2, 3), expected), rtol=1e-6, atol=1e-6)


def test_statistics_are_averaged_and_counters_take_the_largest() -> None:
    one = update(0, 1, running_mean=torch.tensor([0.0]), num_batches_tracked=torch.tensor(3))
    two = update(1, 3, running_mean=torch.tensor([4.0]), num_batches_tracked=torch.tensor(2))
    mean = weighted_mean([one, two])
    assert mean["running_mean"].item() == 3.0
    assert mean["num_batches_tracked"].item() == 3


@pytest.mark.parametrize("name", list(AGGREGATIONS))
def test_it_keeps_every_promise_of_an_aggregation(name: str) -> None:
    check_aggregation(AGGREGATIONS[name])


@pytest.mark.parametrize("name", list(AGGREGATIONS))
def test_it_selects_the_share_of_clients_that_was_asked_for(name: str) -> None:
    chosen = [AGGREGATIONS[name](participation=0.1).select(5, t, 100) for t in range(20)]
    assert {len(drawn) for drawn in chosen} == {10}
    assert len({tuple(drawn) for drawn in chosen}) > 1
    assert AGGREGATIONS[name]().select(0, 0, 7) == list(range(7))


def test_the_learning_rate_decays_by_round() -> None:
    work = FedAvg().work(0, 2, [0])[0]
    assert work.lr == pytest.approx(0.01 * 0.995**2)
    assert (work.epochs, work.batch_size, work.momentum, work.share) == (1, 100, 0.5, 1.0)


@pytest.mark.parametrize("epochs", [1, 5])
@pytest.mark.parametrize("rate", [0.0, 0.5, 0.9])
def test_stragglers_do_fewer_epochs(rate: float, epochs: int) -> None:
    shares = [
        piece.share
        for t in range(30)
        for piece in FedProx(stragglers=rate, local_epochs=epochs).work(1, t, list(range(10)))
    ]
    slow = [share for share in shares if share < 1]
    assert len(slow) == round(rate * 10) * 30
    if epochs > 1 and slow:
        assert set(slow) == {e / epochs for e in range(1, epochs)}


def test_fedprox_asks_for_the_proximal_term() -> None:
    aggregation = FedProx(mu=0.7)
    assert aggregation.correction(Broadcast({}), aggregation.work(0, 0, [1])[0], {}).proximal == 0.7
    assert FedAvg().correction(Broadcast({}), aggregation.work(0, 0, [1])[0], {}).proximal == 0


def test_fedprox_holds_clients_near_the_global_model(tiny_config: Config) -> None:
    job = Job(prepare(tiny_config).federation, tiny_config.method, tiny_config.model, seed=0)
    start = {k: v.clone() for k, v in job.initial_model().state_dict().items()}

    def distance(mu: float) -> float:
        rule = FedProx(mu=mu, lr=0.05, batch_size=20)
        with LocalEngine(workers=1).start(replace(job, rule=rule)) as clients:
            (answer,) = clients.update(Broadcast(start), rule.work(0, 0, [0]))
        return sum(float(((answer.model[name] - start[name]) ** 2).sum()) for name in start)

    assert distance(10.0) < distance(1.0) < distance(0.0)


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_fedsgd_is_gradient_descent_with_momentum_on_the_weighted_risk(tiny_config: Config, clip: float) -> None:
    """Four rounds against torch's own SGD on Σ_k (n_k/n) R_k, which sees all clients at once."""
    federation = prepare(
        tiny_config.with_("partition.kind=dirichlet", "labelling.overlap=true", "labelling.positive=3")
    ).federation
    job = Job(federation, tiny_config.method, tiny_config.model, seed=0)
    aggregation = FedSGD(rounds=4, lr=0.3, lr_decay=0.9, momentum=0.5, clip=clip)
    network = job.initial_model()
    with LocalEngine(workers=1).start(job) as clients:
        state = ServerState.initial(network, len(federation), aggregation, {})
        *_, last = rounds(clients, aggregation, state, seed=0)

    optimiser = torch.optim.SGD(network.parameters(), lr=0.3, momentum=0.5)
    matrix = co_negatives(federation.positive)
    for t in range(4):
        optimiser.param_groups[0]["lr"] = 0.3 * 0.9**t
        optimiser.zero_grad()
        for k in range(len(federation)):
            client = federation.client(k)
            inputs, labels = client.batch(torch.arange(len(client.labels)))
            constants = job.method.constants(client.summary, matrix, len(federation))
            risk = job.method.objective(network, Batch(labels, {"weak": inputs}), constants)
            (risk["total"] * federation.sizes[k] / federation.sizes.sum()).backward()
        length = torch.nn.utils.clip_grad_norm_(network.parameters(), clip or float("inf"))
        assert length > clip
        optimiser.step()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(last.state.model[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("split", [["partition.clients=2"], ["partition.kind=dirichlet", "partition.alpha=0.3"]])
def test_supervised_fedsgd_does_not_depend_on_the_split(tiny_config: Config, split: list[str]) -> None:
    config = tiny_config.with_("method.name=supervised", "aggregation.name=fedsgd", "aggregation.momentum=0.9")
    expected, other = run(config).model.state_dict(), run(config.with_(*split)).model.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(other[name], value, rtol=1e-5, atol=1e-6)


def test_fedsgd_averages_buffers_instead_of_stepping_along_them() -> None:
    state = ServerState(
        0, {"w": torch.zeros(1), "stat": torch.zeros(1)}, {"velocity.w": torch.ones(1)}, buffers=frozenset({"stat"})
    )
    new = FedSGD(lr=1.0, momentum=0.5).combine(state, [update(0, 1, w=torch.tensor([-2.0]), stat=torch.tensor([4.0]))])
    assert new.model["stat"].item() == 4.0
    assert new.model["w"].item() == -2.5  # v = 0.5 · 1 + 2
    assert new.extras.keys() == {"velocity.w"}
