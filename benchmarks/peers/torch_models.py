"""What the peers on PyTorch share: the models, and a client's local epoch."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import common


def build(model: str) -> nn.Module:
    """Return the network with the initial weights that all peers start from."""
    network = _layers(model)
    load(network, common.initial_weights(model))
    return network


@functools.cache
def reused(model: str) -> nn.Module:
    """Return this process's one network to load weights into."""
    return _layers(model)


def _layers(model: str) -> nn.Sequential:
    if model == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))
    if model == "colour-cnn":
        return nn.Sequential(
            *_block(3, 32, stride=2),
            *_block(32, 64),
            nn.MaxPool2d(2),
            *_block(64, 64),
            *_block(64, 128, stride=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, 10),
        )
    return nn.Sequential(
        nn.Conv2d(1, 3, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(3, 20, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(320, 50),
        nn.ReLU(),
        nn.Linear(50, 10),
    )


def _block(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    return [convolution, nn.GroupNorm(8, after), nn.ReLU()]


def load(network: nn.Module, weights: common.Weights) -> None:
    """Put NumPy weights into a network."""
    network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})


def weights_of(network: nn.Module) -> common.Weights:
    """Return a network's weights as NumPy arrays."""
    return {name: value.detach().numpy().copy() for name, value in network.state_dict().items()}


def client_tensors(task: common.Task) -> tuple[Tensor, Tensor]:
    """Return the images and labels of all clients as tensors."""
    images, labels = common.client_data(task)
    return torch.from_numpy(images), torch.from_numpy(labels)


def train(network: nn.Module, images: Tensor, labels: Tensor, in_order: bool, autocast: bool = False) -> None:
    """Run one local epoch of SGD on a client's examples, in batches by index."""
    optimiser = torch.optim.SGD(network.parameters(), lr=common.LEARNING_RATE, momentum=common.MOMENTUM)
    order = torch.arange(len(labels)) if in_order else torch.randperm(len(labels))
    for batch in order.split(common.BATCH_SIZE):
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(network(images[batch]), labels[batch])
        loss.backward()
        optimiser.step()
