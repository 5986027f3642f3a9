"""What aggregations keep, on the server and with clients: through stops, with buffers and frozen parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from fedpu.aggregation import AGGREGATIONS, IFCA, FedAvg, FedDyn, Scaffold, ServerState
from fedpu.aggregation.robust import Robust
from fedpu.applications.experiment import resume, run
from fedpu.config import Config
from fedpu.data import DataSettings, load
from fedpu.engine import LocalEngine, ReferenceEngine
from fedpu.round import Broadcast, Descent, Tensors, Update, Work, under


@pytest.mark.parametrize("name", list(AGGREGATIONS))
def test_a_stopped_run_goes_on_to_the_same_bits_with_any_number_of_workers(
    tiny_config: Config, tmp_path: Path, name: str
) -> None:
    """The checkpoint holds the model, what the server keeps and what every client keeps: from two workers to one, and
    from one to two.
    """
    config = tiny_config.with_(
        f"aggregation.name={name}", "aggregation.rounds=5", "aggregation.participation=0.6", "engine.workers=1"
    )
    two = LocalEngine(workers=2)

    class Stop(Exception):
        pass

    def stop_after(last: int) -> Callable[[dict[str, Any]], None]:
        def stop(line: dict[str, Any]) -> None:
            if line["round"] == last:
                raise Stop

        return stop

    run(config, out=tmp_path / "whole")
    with pytest.raises(Stop):
        run(config.model_copy(update={"engine": two}), out=tmp_path / "stopped", on_round=stop_after(2))
    with pytest.raises(Stop):
        resume(tmp_path / "stopped", engine=LocalEngine(workers=1), on_round=stop_after(4))
    resume(tmp_path / "stopped", engine=two)
    whole, stopped = (
        safetensors.torch.load_file(tmp_path / folder / "checkpoint.safetensors") for folder in ("whole", "stopped")
    )
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(value, stopped[key]) for key, value in whole.items())
    rule = AGGREGATIONS[name]()
    assert any(key.startswith("clients.all.") for key in whole) == bool(rule.start_client({"w": torch.zeros(1)}))


@pytest.fixture
def network() -> nn.Module:
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    network[0].requires_grad_(False)
    return network


@pytest.mark.parametrize("name", list(AGGREGATIONS))
def test_buffers_are_averaged_and_frozen_parameters_stay(network: nn.Module, name: str) -> None:
    rule = AGGREGATIONS[name]()
    state = ServerState.initial(network, 2, rule, {})
    assert "0.weight" not in state.parameters
    assert "2.weight" in state.parameters
    updates = [answer(state, rule, k, examples, change) for k, (examples, change) in enumerate([(1, 0.4), (3, 0.8)])]
    for _ in range(2):
        state = rule.combine(state, updates)
    assert torch.equal(state.model["0.weight"], network[0].weight)
    mean = state.model["1.running_mean"]
    if isinstance(rule, Robust):  # of two clients, whom to believe is the rule's affair
        assert bool(((mean >= 0.4 - 1e-6) & (mean <= 0.8 + 1e-6)).all())
    else:
        torch.testing.assert_close(mean, torch.full((4,), 0.7))
    assert not torch.equal(state.model["2.weight"], network[2].weight)


def answer(state: ServerState, rule: object, client: int, examples: int, change: float) -> Update:
    """An update in which everything that can change has changed by as much."""
    moving = {name for name in state.model if not name.startswith("0.") and state.model[name].is_floating_point()}
    model = {name: value + change if name in moving else value for name, value in state.model.items()}
    return Update(client, examples, model, {}, extras=rule.returns(state.parameters))  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every tenth image of MNIST-5k."""
    data = load(DataSettings(name="mnist-5k"))
    file: Path = tmp_path_factory.mktemp("data") / "few.npz"
    np.savez(file, x=data.inputs[::10], y=data.labels[::10])
    return file


@pytest.mark.parametrize("name", list(AGGREGATIONS))
def test_a_network_with_batch_norm_is_trained(tiny_config: Config, few_images: Path, name: str) -> None:
    config = tiny_config.with_(
        f"data.name={few_images}",
        "model.name=resnet9",
        "model.norm=batch",
        "model.width=8",
        "aggregation.rounds=2",
        "aggregation.batch_size=40",
        "aggregation.lr=0.01",
        "partition.clients=2",
        "labelling.positive=5",
    )
    state = run(config.with_(f"aggregation.name={name}")).model.state_dict()
    assert all(torch.isfinite(value).all() for value in state.values())
    assert all((value >= 0).all() for key, value in state.items() if key.endswith("running_var"))


def test_scaffold_with_one_client_is_fedavg(tiny_config: Config) -> None:
    """Its control variate is the server's, and so nothing is corrected."""
    config = tiny_config.with_("partition.clients=1", "labelling.positive=10")
    ours, plain = (run(config.with_(f"aggregation.name={name}")).model.state_dict() for name in ("scaffold", "fedavg"))
    for key, value in plain.items():
        torch.testing.assert_close(ours[key], value, rtol=0, atol=1e-6)


def test_a_client_without_a_batch_changes_nothing_of_what_it_keeps() -> None:
    w, c, own = {"w": torch.ones(2)}, {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 4.0])}
    idle = Descent(steps=0, lr=0.1, momentum=0.5)
    for rule in (Scaffold(), FedDyn()):
        ended = rule.end_client(Broadcast(w, c), Work(0, 0, 0.1), own, w, w, idle)
        assert torch.equal(ended.state["w"], own["w"])
        assert all(not value.any() for value in ended.extras.values())


def test_the_length_of_a_descent_is_the_papers_without_momentum() -> None:
    assert Descent(steps=7, lr=0.1, momentum=0.0).length == pytest.approx(0.7)
    assert Descent(steps=2, lr=1.0, momentum=0.5).length == pytest.approx(2.5)  # the first step moves 1 and .5 again


class TestIFCA:
    """What the server makes of the choices of clients."""

    rule = IFCA(clusters=3)

    @pytest.fixture
    def state(self) -> ServerState:
        return ServerState.initial(nn.Linear(8, 8), 5, self.rule, {})

    def chosen(self, state: ServerState, client: int, cluster: int, examples: int, value: float) -> Update:
        model = {name: torch.full_like(tensor, value) for name, tensor in state.model.items()}
        return Update(client, examples, model, {}, extras={"cluster": torch.tensor(cluster)})

    def test_clusters_start_with_the_same_numbers_in_another_order(self, state: ServerState) -> None:
        first, *others = (under(f"cluster-{j}", state.extras) for j in range(3))
        assert all(torch.equal(first[name], value) for name, value in state.model.items())
        for other in others:
            for name, value in first.items():
                assert not torch.equal(other[name], value)
                torch.testing.assert_close(other[name].flatten().sort().values, value.flatten().sort().values)
        assert not torch.equal(others[0]["weight"], others[1]["weight"])
        near = IFCA(spread=0.1).start_server(state)["cluster-1.weight"]
        torch.testing.assert_close(near, 0.9 * first["weight"] + 0.1 * others[0]["weight"])

    def test_each_cluster_is_averaged_and_one_that_nobody_chose_stays(self, state: ServerState) -> None:
        new = self.rule.combine(
            state,
            [self.chosen(state, 0, 1, 1, 1.0), self.chosen(state, 1, 1, 3, 5.0), self.chosen(state, 2, 0, 2, 7.0)],
        )
        assert under("cluster-1", new.extras)["weight"][0, 0].item() == 4.0
        assert under("cluster-0", new.extras)["weight"][0, 0].item() == 7.0
        assert torch.equal(under("cluster-2", new.extras)["weight"], under("cluster-2", state.extras)["weight"])
        assert new.model["weight"][0, 0].item() == 4.0, "the cluster with the most examples"
        assert self.rule.report(new) == {"clusters": {"clients": [1, 2, 0], "examples": [2, 4, 0]}}

    def test_a_number_that_is_no_clusters_counts_for_nothing(self, state: ServerState) -> None:
        new = self.rule.combine(state, [self.chosen(state, 0, 7, 1, 1.0), self.chosen(state, 1, -1, 1, 1.0)])
        assert all(torch.equal(new.model[name], value) for name, value in state.model.items())
        assert self.rule.report(new)["clusters"]["clients"] == [0, 0, 0]

    def test_one_cluster_is_fedavg(self, tiny_config: Config) -> None:
        config = tiny_config.model_copy(update={"engine": ReferenceEngine(workers=1)})
        one, plain = (
            run(config.model_copy(update={"aggregation": rule}))
            for rule in (IFCA(clusters=1, rounds=2, lr=0.1), FedAvg(rounds=2, lr=0.1))
        )
        expected: Tensors = plain.model.state_dict()
        assert all(torch.equal(one.model.state_dict()[name], value) for name, value in expected.items())
        assert one.curve[-1]["clusters"] == {"clients": [5], "examples": [plain.summary["examples"]]}
