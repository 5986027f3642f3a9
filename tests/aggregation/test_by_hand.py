"""SCAFFOLD, FedDyn, FedAdam, FedYogi and IFCA against loops written out in NumPy.

A linear softmax model is one matrix here, W of shape (classes, inputs + 1), its last column the bias, and its gradient
is a formula. The package is asked for data, for the draw of clients and batches, and for the first weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fedpu.aggregation import IFCA, FedDyn, Scaffold
from fedpu.algorithm import rounds
from fedpu.applications.prepared import prepare
from fedpu.applications.training import first_state, job_of
from fedpu.config import Config
from fedpu.engine import ClientStates, Job
from fedpu.engine.client import draw_batches
from fedpu.round import Tensors, Work, under

Matrix = NDArray[np.float64]
ROUNDS = 6


def matrix(tensors: Tensors) -> Matrix:
    return np.hstack([tensors["1.weight"].double().numpy(), tensors["1.bias"].double().numpy()[:, None]])


@dataclass
class ByHand:
    """Clients with their data, and plain SGD on them."""

    config: Config
    job: Job
    start: Matrix

    @property
    def clients(self) -> int:
        return len(self.job.federation)

    @property
    def sizes(self) -> list[int]:
        return self.job.federation.sizes.tolist()

    def work(self, round_: int) -> list[Work]:
        aggregation = self.config.aggregation
        return aggregation.work(self.config.seed, round_, aggregation.select(self.config.seed, round_, self.clients))

    def data(self, client: int, positions: torch.Tensor) -> tuple[Matrix, NDArray[np.int64]]:
        inputs, labels = self.job.federation.client(client).batch(positions)
        flat = inputs.double().flatten(1).numpy()
        return np.hstack([flat, np.ones((len(flat), 1))]), labels.numpy()

    def train(
        self, work: Work, start: Matrix, correction: Callable[[Matrix], Matrix | float] = lambda w: 0.0
    ) -> tuple[Matrix, Matrix]:
        """Return the client's last weights, and the mean of its own gradients, each weighted by what it moved."""
        w, velocity, own = start.copy(), np.zeros_like(start), []
        for positions in draw_batches(self.job, self.job.federation.client(work.client), work):
            x, y = self.data(work.client, positions)
            p = probabilities(w, x)
            p[np.arange(len(y)), y] -= 1
            gradient = p.T @ x / len(y) + 0.01 * w
            own.append(gradient)
            velocity = 0.5 * velocity + gradient + correction(w)
            w = w - work.lr * velocity
        moved = [sum(0.5**later for later in range(len(own) - step)) for step in range(len(own))]
        return w, np.average(own, axis=0, weights=moved) if own else np.zeros_like(w)

    def loss(self, client: int, w: Matrix) -> float:
        labels = self.job.federation.client(client).labels
        x, y = self.data(client, (labels >= 0).nonzero()[:, 0])
        return float(-np.log(probabilities(w, x)[np.arange(len(y)), y]).mean()) if len(y) else 0.0

    def mean(self, values: dict[int, Matrix]) -> Matrix:
        return np.average(list(values.values()), axis=0, weights=[self.sizes[k] for k in values])


def probabilities(w: Matrix, x: Matrix) -> Matrix:
    z = x @ w.T
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def scaffold(world: ByHand) -> Iterator[dict[str, Matrix]]:
    w, c = world.start, np.zeros_like(world.start)
    own = {k: np.zeros_like(w) for k in range(world.clients)}
    for t in range(ROUNDS):
        ends, changes = {}, {}
        for work in world.work(t):
            k = work.client
            ends[k], gradient = world.train(work, w, lambda _, offset=c - own[k]: offset)
            changes[k] = gradient - own[k]  # c_k⁺ is the mean of the client's own gradients
        own |= {k: own[k] + change for k, change in changes.items()}
        w = w + 0.8 * (world.mean(ends) - w)
        c = c + len(ends) / world.clients * world.mean(changes)
        yield {"model": w, "server": c} | {f"client {k}": own[k] for k in own}


def feddyn(world: ByHand) -> Iterator[dict[str, Matrix]]:
    w, h = world.start, np.zeros_like(world.start)
    own = {k: np.zeros_like(w) for k in range(world.clients)}
    for t in range(ROUNDS):
        ends = {}
        for work in world.work(t):
            k = work.client
            ends[k], _ = world.train(work, w, lambda now, g=own[k], w=w: -g + 0.3 * (now - w))
        own |= {k: own[k] - 0.3 * (end - w) for k, end in ends.items()}
        h = h - 0.3 * len(ends) / world.clients * (world.mean(ends) - w)
        w = world.mean(ends) - h / 0.3
        yield {"model": w, "server": h} | {f"client {k}": own[k] for k in own}


def adaptive(world: ByHand, second: Callable[[Matrix, Matrix], Matrix]) -> Iterator[dict[str, Matrix]]:
    w, m, v = world.start, np.zeros_like(world.start), np.full_like(world.start, 1e-6)
    for t in range(ROUNDS):
        change = world.mean({work.client: world.train(work, w)[0] for work in world.work(t)}) - w
        m, v = 0.9 * m + 0.1 * change, second(v, change**2)
        w = w + 0.02 * m / (np.sqrt(v) + 1e-3)
        yield {"model": w, "server.first": m, "server.second": v}


def fedadam(world: ByHand) -> Iterator[dict[str, Matrix]]:
    return adaptive(world, lambda v, square: 0.99 * v + 0.01 * square)


def fedyogi(world: ByHand) -> Iterator[dict[str, Matrix]]:
    return adaptive(world, lambda v, square: v - 0.01 * square * np.sign(v - square))


def ifca(world: ByHand) -> Iterator[dict[str, Matrix]]:
    start = first_state(world.config, world.job.initial_model(), world.clients, 10)
    models = [matrix(under(f"cluster-{j}", start.extras)) for j in range(3)]
    np.testing.assert_array_equal(models[0], world.start)
    w, chosen = world.start, set()
    for t in range(ROUNDS):
        ends: list[dict[int, Matrix]] = [{}, {}, {}]
        for work in world.work(t):
            j = int(np.argmin([world.loss(work.client, model) for model in models]))
            ends[j][work.client] = world.train(work, models[j])[0]
        models = [world.mean(mine) if mine else models[j] for j, mine in enumerate(ends)]
        largest = int(np.argmax([sum(world.sizes[k] for k in mine) for mine in ends]))
        w = models[largest]
        chosen |= {j for j in range(3) if ends[j]}
        yield {"model": w} | {f"server.cluster-{j}": model for j, model in enumerate(models)}
    assert len(chosen) > 1, "else it would be FedAvg"


LOOPS = {
    "scaffold": (scaffold, ["aggregation.server_lr=0.8"]),
    "feddyn": (feddyn, ["aggregation.alpha=0.3"]),
    "fedadam": (fedadam, ["aggregation.server_lr=0.02"]),
    "fedyogi": (fedyogi, ["aggregation.server_lr=0.02"]),
    "ifca": (ifca, ["aggregation.clusters=3"]),
}


@pytest.mark.parametrize("engine", ["local", "reference"])
@pytest.mark.parametrize("method", ["supervised", "positive-only"])
@pytest.mark.parametrize("name", list(LOOPS))
def test_every_round_is_that_of_the_loop(tiny_config: Config, name: str, method: str, engine: str) -> None:
    loop, settings = LOOPS[name]
    config = linear(tiny_config, f"aggregation.name={name}", f"method.name={method}", f"engine.name={engine}")
    config = config.with_(*settings, "aggregation.participation=0.6")
    job = job_of(config, prepare(config).federation)
    world = ByHand(config, job, matrix(dict(job.initial_model().state_dict())))
    assert len(set(world.sizes)) > 1
    assert len({tuple(work.client for work in world.work(t)) for t in range(ROUNDS)}) > 1
    for (done, states), expected in zip(trained(config, job), loop(world), strict=True):
        for what, value in expected.items():
            np.testing.assert_allclose(
                part(what, done.state.model, done.state.extras, states), value, atol=1e-5, rtol=0
            )


def linear(config: Config, *changes: str) -> Config:
    return config.with_(
        "model.hidden=[]",
        "partition.kind=dirichlet",
        "partition.alpha=0.2",
        "labelling.positive=3",
        "labelling.overlap=true",
        f"aggregation.rounds={ROUNDS}",
        "aggregation.local_epochs=2",
        "aggregation.batch_size=30",
        "aggregation.lr_decay=0.9",
        "aggregation.weight_decay=0.01",
        *changes,
    )


def trained(config: Config, job: Job):  # type: ignore[no-untyped-def]
    state = first_state(config, job.initial_model(), len(job.federation), 10)
    with config.engine.start(job) as clients:
        for done in rounds(clients, config.aggregation, state, config.seed):
            yield done, clients.states()


def part(what: str, model: Tensors, server: Tensors, states: ClientStates) -> Matrix:
    """Return what the package has for a value of the loop."""
    if what == "model":
        return matrix(model)
    if what.startswith("client"):
        client = int(what.split()[1])
        return matrix(under("aggregation", states[client])) if client in states else np.zeros((10, 65))
    _, _, group = what.partition(".")
    return matrix(under(group, server) if group else server)


@pytest.mark.parametrize("rule", [Scaffold(), FedDyn(alpha=0.3)], ids=["scaffold", "feddyn"])
def test_with_all_clients_the_server_has_the_weighted_mean_of_what_clients_keep(
    tiny_config: Config, rule: Scaffold | FedDyn
) -> None:
    config = linear(tiny_config, f"aggregation.name={rule.name}")
    job = job_of(config, prepare(config).federation)
    for done, states in trained(config, job):
        own = [matrix(under("aggregation", states[k])) for k in range(len(job.federation))]
        mean = np.average(own, axis=0, weights=job.federation.sizes.numpy())
        np.testing.assert_allclose(matrix(done.state.extras), mean, atol=1e-5)


def test_clusters_find_clients_whose_labels_mean_the_same(tiny_config: Config) -> None:
    """Half of the clients name every digit by another number; one model can't be right for all."""
    config = tiny_config.with_(
        "model.hidden=[]", "method.name=supervised", "partition.clients=6", "aggregation.rounds=8", "seed=3"
    ).model_copy(update={"aggregation": IFCA(rounds=8, lr=0.1, batch_size=20)})
    federation = prepare(config).federation
    federation.labels[federation.owner >= 3] = (federation.labels[federation.owner >= 3] + 5) % 10
    job = job_of(config, federation)
    *_, (done, _) = trained(config, job)
    assert config.aggregation.report(done.state)["clusters"]["clients"] == [3, 3]
    world = ByHand(config, job, matrix(done.state.model))
    models = [matrix(under(f"cluster-{j}", done.state.extras)) for j in range(2)]
    best = [min(range(2), key=lambda j, k=k: world.loss(k, models[j])) for k in range(6)]
    assert best in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])
    assert max(world.loss(k, models[best[k]]) for k in range(6)) < 0.5
