"""The engines of one machine give the same global model: for every method and aggregation, few or many clients. For
every model, :func:`fedpu.testing.check_model` says so.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedpu.aggregation import AGGREGATIONS, Aggregation
from fedpu.applications.experiment import run
from fedpu.applications.prepared import prepare
from fedpu.applications.training import job_of
from fedpu.config import Config
from fedpu.data import DataSettings, load
from fedpu.engine import Job
from fedpu.engine.stacked import StackedNetwork, WideNetwork, twin_of
from fedpu.engine.stacked.trainer import EXAMPLES, not_stacked_because, stacks
from fedpu.method import METHODS
from fedpu.models import MODELS, ResidualSum
from fedpu.models.small_resnet import StandardisedConv2d
from fedpu.round import ClientRule


@pytest.fixture(scope="module")
def few_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 images of MNIST: wide networks take their time."""
    every, path = load(DataSettings(name="mnist-5k")), tmp_path_factory.mktemp("few") / "images.npz"
    np.savez(path, x=every.inputs[::8].numpy(), y=every.labels[::8].numpy())
    return path


def assert_same_model(config: Config, tolerance: float = 2e-5) -> None:
    reference, local = run(config.with_("engine.name=reference")), run(config.with_("engine.name=local"))
    for name, value in reference.model.state_dict().items():
        torch.testing.assert_close(local.model.state_dict()[name], value, rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(local.curve, reference.curve, strict=True):
        assert ours["risk"].keys() == theirs["risk"].keys()
        assert ours["clients"] == theirs["clients"]
        for term, value in theirs["risk"].items():
            assert ours["risk"][term] == pytest.approx(value, rel=1e-3, abs=1e-4), term


def work_is_its_own(aggregation: type[Aggregation]) -> bool:
    """Does a client's work differ from FedAvg's, or only what the server does with the models?"""
    parts = [*(name for name in vars(ClientRule) if not name.startswith("_")), "work", "broadcast"]
    return any(getattr(aggregation, part) is not getattr(AGGREGATIONS["fedavg"], part) for part in parts)


COMBINATIONS = [
    (method, name)
    for name, aggregation in AGGREGATIONS.items()
    for method in (METHODS if name == "fedavg" or work_is_its_own(aggregation) else ["fedpu", "fedmatch"])
]
"""all methods where clients work in another way; elsewhere one with tensors beside the model, and one without"""


@pytest.mark.parametrize(("method", "aggregation"), COMBINATIONS)
def test_every_method_under_every_aggregation(tiny_config: Config, method: str, aggregation: str) -> None:
    assert_same_model(
        tiny_config.with_(
            f"method.name={method}",
            f"aggregation.name={aggregation}",
            "aggregation.rounds=2",
            "aggregation.local_epochs=2",
            "aggregation.batch_size=100",
            "aggregation.weight_decay=0.01",
            "aggregation.participation=0.8",
            *(["aggregation.stragglers=0.5"] if "stragglers" in AGGREGATIONS[aggregation].model_fields else []),
        )
    )


NOT_STACKED = {
    "text": "the network's layer",
}
"""models whose clients are trained one by one, and the reason that is given"""


@pytest.mark.parametrize("model", list(MODELS))
def test_every_model(tiny_config: Config, model: str, few_images: Path, tmp_path: Path) -> None:
    data = [f"data.name={few_images}"]
    if MODELS[model].takes_tokens:
        random = np.random.default_rng(0)
        np.savez(tmp_path / "texts.npz", x=random.integers(0, 50, (200, 6)), y=np.arange(200) % 10)
        data = [f"data.name={tmp_path / 'texts.npz'}", "data.tokens=true"]
    config = tiny_config.with_(
        *data,
        f"model.name={model}",
        *(["model.width=8"] if "width" in MODELS[model].model_fields else []),
        "aggregation.rounds=1",
        # Eight layers of maxima: float sums in another order choose another maximum once in a while, and from there on
        # a longer step would lead elsewhere, between PyTorch's own memory formats too.
        f"aggregation.lr={'0.0001' if 'resnet' in model else '0.01'}",
    )
    reason = config.engine.slow_because(job_of(config, prepare(config).federation))
    if model in NOT_STACKED:  # both engines run the same code there, so there is nothing to compare
        assert NOT_STACKED[model] in str(reason)
    else:
        assert reason is None
        assert_same_model(config)


@pytest.mark.parametrize("method", ["fedpu", "positive-only"])
def test_full_batches_of_several_passes(tiny_config: Config, method: str) -> None:
    config = tiny_config.with_("data.name=mnist-5k", "model.name=paper-cnn", "aggregation.name=fedsgd")
    assert all(client > 2 * EXAMPLES for client in prepare(config).federation.sizes.tolist())
    assert_same_model(config.with_(f"method.name={method}", "aggregation.rounds=2", "aggregation.weight_decay=0.01"))


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize(
    "settings",
    [
        ["partition.clients=40", "labelling.positive=1", "aggregation.batch_size=10"],
        ["partition.kind=dirichlet", "labelling.positive=3", "aggregation.batch_size=20"],
    ],
    ids=["many", "ragged"],
)
def test_many_small_and_ragged_clients(tiny_config: Config, method: str, settings: list[str]) -> None:
    both = ["labelling.overlap=true", "aggregation.lr=0.02", "aggregation.rounds=2"]
    assert_same_model(tiny_config.with_(f"method.name={method}", *both, *settings))


@pytest.mark.parametrize(
    "change",
    [
        "method.surrogate=absolute",
        "method.surrogate=released-code",
        "method.clamp=reverse",
        "method.clamp=off",
        "method.lent=shared",
        "method.expectation=batch",
        'method={name="fedpu",expectation="batch",half_labelled=true}',
        "method.cross_entropy=0.5",
        "labelling.scenario=case-control",
        "aggregation.momentum=0",
    ],
)
def test_every_setting_of_the_risk(tiny_config: Config, change: str) -> None:
    assert_same_model(tiny_config.with_(change, "aggregation.rounds=2"))


def test_the_papers_network_and_many_small_clients_are_stacked(tiny_config: Config) -> None:
    config = tiny_config.with_("data.name=mnist-5k", "model.name=paper-cnn", "partition.clients=400")
    ready = prepare(config.with_("labelling.positive=1", "labelling.overlap=true"))
    job = Job(ready.federation, config.method, config.model, seed=0)
    assert not_stacked_because(job) is None
    work = config.aggregation.work(0, 0, list(range(400)))
    network = twin_of(job.initial_model())
    assert isinstance(network, StackedNetwork)
    pieces, costs = stacks(job, network, work, each=False)
    assert sorted(piece.client for stack in pieces for piece in stack.work) == list(range(400))
    assert len(pieces) == len(costs) < 50


def test_layers_without_a_twin_are_left_to_pytorch() -> None:
    unknown = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 5, dilation=2), torch.nn.Flatten(), torch.nn.Linear(1200, 10))
    assert StackedNetwork.of(unknown) is None
    assert StackedNetwork.of(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))) is None
    assert StackedNetwork.of(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.0))) is not None


@pytest.mark.parametrize(
    "layers",
    [
        [
            torch.nn.Conv2d(2, 4, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(64, 3),
        ],
        [torch.nn.Conv2d(2, 4, 3, stride=2, bias=False), torch.nn.Flatten(), torch.nn.Linear(36, 3, bias=False)],
        [torch.nn.Conv2d(2, 4, (2, 3), stride=(1, 2), padding=(1, 0)), torch.nn.Flatten(), torch.nn.Linear(108, 3)],
        [torch.nn.Conv2d(2, 4, 2), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 3)],
        [
            torch.nn.Conv2d(2, 8, 3),
            torch.nn.GroupNorm(4, 8),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(8, 3),
        ],
    ],
    ids=["padded", "strided", "uneven", "odd pooling", "group norm"],
)
def test_stacked_layers_have_the_output_and_gradient_of_their_modules(layers: list[torch.nn.Module]) -> None:
    generator = torch.Generator().manual_seed(0)
    network = torch.nn.Sequential(*layers)
    twin = StackedNetwork.of(network)
    assert twin is not None
    start = twin.flatten(dict(network.state_dict()))
    flat = torch.stack([start, start + 0.1 * torch.randn(start.shape, generator=generator)])
    x, pull = torch.randn(2, 2, 8, 8, 5, generator=generator), torch.randn(2, 3, 5, generator=generator)
    out = torch.empty_like(flat)
    logits = twin.forward(twin.views(flat), x)
    twin.backward(twin.views(flat), pull, twin.views(out))
    for k in range(2):
        network.load_state_dict(twin.unflatten(flat[k]))
        network.zero_grad()
        expected = network(x[k].movedim(-1, 0))
        expected.backward(pull[k].T)
        torch.testing.assert_close(logits[k].T, expected, rtol=1e-4, atol=1e-5)
        gradients = torch.cat([p.grad.reshape(-1) for p in network.parameters()])
        torch.testing.assert_close(out[k], gradients, rtol=1e-4, atol=1e-5)


WIDE = {
    "group norm": [
        torch.nn.Conv2d(2, 8, 3, stride=2, padding=1, bias=False),
        torch.nn.GroupNorm(4, 8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 6, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(6, 3),
    ],
    "residual": [
        torch.nn.Conv2d(2, 8, 3),
        torch.nn.MaxPool2d(3, stride=2, ceil_mode=True),
        ResidualSum(torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Identity()),
        ResidualSum(torch.nn.Sequential(torch.nn.Conv2d(8, 8, 1, groups=2), torch.nn.ReLU())),
        torch.nn.AdaptiveMaxPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 3, bias=False),
    ],
    "standardised": [
        StandardisedConv2d(2, 8, 4, stride=2, padding=1, bias=False),
        torch.nn.MaxPool2d(2),
        torch.nn.GroupNorm(4, 8),
        torch.nn.ReLU(),
        ResidualSum(StandardisedConv2d(8, 8, 3, padding=1)),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 3),
    ],
    "smooth": [
        torch.nn.ReLU(),
        torch.nn.Conv2d(2, 8, 3),
        torch.nn.GELU(),
        torch.nn.Conv2d(8, 8, 3, dilation=2),
        torch.nn.SiLU(),
        torch.nn.Flatten(),
        torch.nn.ReLU(),
        torch.nn.Linear(32, 3),
    ],
}
"""networks with convolutions of more channels than a stack gains from"""


@pytest.mark.parametrize("layers", list(WIDE.values()), ids=list(WIDE))
@pytest.mark.parametrize("clients", [1, 2])
def test_wide_layers_have_the_output_and_gradient_of_their_modules(layers: list[torch.nn.Module], clients: int) -> None:
    generator = torch.Generator().manual_seed(0)
    network = torch.nn.Sequential(*layers)
    twin = twin_of(network)
    assert isinstance(twin, WideNetwork)
    start = twin.flatten(dict(network.state_dict()))
    flat = start + 0.1 * torch.randn(clients, len(start), generator=generator)
    x = torch.randn(clients, 2, 8, 8, 5, generator=generator)
    pull, out, seen = torch.randn(clients, 3, 5, generator=generator), torch.empty_like(flat), x.clone()
    with torch.no_grad():
        logits = twin.forward(twin.views(flat), x)
        twin.backward(twin.views(flat), pull, twin.views(out))
    assert torch.equal(x, seen), "inputs are left as they were"
    for k in range(clients):
        network.load_state_dict(twin.unflatten(flat[k]))
        network.zero_grad()
        expected = network(x[k].movedim(-1, 0))
        expected.backward(pull[k].T)
        torch.testing.assert_close(logits[k].T, expected, rtol=1e-4, atol=1e-5)
        for found, p in zip(twin.unflatten(out[k]).values(), network.parameters(), strict=True):
            torch.testing.assert_close(found, p.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["fedpu", "aligned", "supervised"])
@pytest.mark.parametrize("batch", [20, 400], ids=["steps", "one step"])
def test_wide_networks_of_many_clients(tiny_config: Config, few_images: Path, method: str, batch: int) -> None:
    config = tiny_config.with_(
        f"data.name={few_images}",
        "model.name=colour-cnn",
        "model.channels=8",
        f"method.name={method}",
        "partition.clients=60",
        "labelling.positive=1",
        "labelling.overlap=true",
        "aggregation.rounds=1",
        "aggregation.momentum=0.9",
        f"aggregation.batch_size={batch}",
        "aggregation.lr=0.01",
    )
    assert config.engine.slow_because(job_of(config, prepare(config).federation)) is None
    assert_same_model(config)


def test_wide_networks_have_the_same_bits_for_any_number_of_workers(tiny_config: Config, few_images: Path) -> None:
    data = f"data.name={few_images}"
    config = tiny_config.with_(data, "model.name=resnet9", "model.width=8", "aggregation.rounds=1")
    one, three = (run(config.with_(f"engine.workers={workers}")).model.state_dict() for workers in (1, 3))
    assert all(torch.equal(value, three[name]) for name, value in one.items())
