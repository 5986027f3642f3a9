"""The contract of a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedpu.aggregation import FedAvg
from fedpu.data import Dataset, Normalisation
from fedpu.method import FedPU
from fedpu.models import Model, OwnModel
from fedpu.registry import reference_to, why_lost
from fedpu.testing import generators
from fedpu.testing.promise import Checked, ContractError, made
from fedpu.testing.trial import LOCAL, REFERENCE, Trial, difference, digits

Build = Callable[[tuple[int, ...], int], nn.Module]
INITIAL = "Draw initial weights with PyTorch, unseeded: whoever builds the network seeds its generator"


def check_model(model: Model | type[Model] | Build, *, shape: tuple[int, ...] = (1, 28, 28)) -> None:
    """Check that a model keeps every promise; raise :class:`ContractError` where it does not.

    A class is made with its defaults; a function of shape and classes will do, too. ``shape`` is that of the inputs
    that it takes, channels first.
    """
    name = Checked(model)
    model = _as_model(model)
    checked = name if isinstance(model, OwnModel) else Checked(model)
    data = _tokens_of(shape) if model.takes_tokens else _digits_of(shape)
    inputs = data.normalisation(data.inputs[:8])
    for classes in (10, 7):
        with checked.able_to(f"be built for inputs of shape {shape} and {classes} classes"):
            network = _built(model, shape, classes, 0)
            _check_outputs(checked, network, inputs, classes)
    with checked.able_to("be built again and again"):
        _check_initial(checked, model, shape)
        _check_saved(checked, model, shape, inputs)
    with checked.able_to("be trained on both engines of one machine"):
        _check_engines(checked, model, data)


def _as_model(model: Model | type[Model] | Build) -> Model:
    if isinstance(model, Model | type) or not callable(model):
        return made(Model, model)
    lost = why_lost(model)
    if lost:
        raise ContractError(f"{reference_to(model)}: a function must be found by its name, but {lost}.")
    return OwnModel(name=reference_to(model))


def _digits_of(shape: tuple[int, ...]) -> Dataset:
    """Return digits in another shape: enlarged and in as many channels, or their values again and again."""
    data = digits()

    def reshaped(images: Tensor) -> Tensor:
        if len(shape) == 3:
            enlarged = F.interpolate(images.float(), shape[1:], mode="nearest").to(torch.uint8)
            return enlarged.expand(-1, shape[0], -1, -1).contiguous()
        length = math.prod(shape)
        flat = images.flatten(1).repeat(1, math.ceil(length / images[0].numel()))[:, :length]
        return flat.reshape(len(images), *shape)

    normal, channels = data.normalisation, shape[0]
    alike = replace(normal, mean=normal.mean[:1] * channels, std=normal.std[:1] * channels)
    return replace(data, inputs=reshaped(data.inputs), test_inputs=reshaped(data.test_inputs), normalisation=alike)


def _tokens_of(shape: tuple[int, ...]) -> Dataset:
    """Return digits whose pixels, of which there are 17 shades, are taken for token ids."""
    data = _digits_of(shape)
    inputs, tests = data.inputs.to(torch.int64), data.test_inputs.to(torch.int64)
    return replace(data, inputs=inputs, test_inputs=tests, normalisation=Normalisation.of_tokens())


def _built(model: Model, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    with generators.seeded(seed):
        return model.build(shape, classes)


def _check_outputs(checked: Checked, network: nn.Module, inputs: Tensor, classes: int) -> None:
    checked.promise(
        "build returns a torch.nn.Module",
        isinstance(network, nn.Module),
        f"It returned {type(network).__name__}",
        "Return the network itself",
    )
    for mode in (True, False):
        outputs = network.train(mode)(inputs)
        checked.promise(
            "a network turns inputs into one number for each class",
            isinstance(outputs, Tensor) and tuple(outputs.shape) == (len(inputs), classes),
            f"It turned {len(inputs)} inputs into {_shown(outputs)}; it should be ({len(inputs)}, {classes})",
            "End with a layer of `classes` outputs, without a softmax",
        )
        checked.promise(
            "outputs are finite",
            bool(torch.isfinite(outputs).all()),
            "With initial weights, on real digits, they were not",
            "Look at the initial weights, and at divisions by a variance of zero",
        )
    with torch.no_grad():
        alone, together = network.eval()(inputs[:1]), network(inputs)[:1]
    checked.promise(
        "in evaluation an example's output does not depend on the others of its batch",
        torch.allclose(alone, together, rtol=1e-4, atol=1e-4),
        "Alone an example had another output than among others",
        "Use batch statistics in training only, as nn.BatchNorm2d does",
    )
    checked.promise(
        "a network has something to train",
        any(p.requires_grad for p in network.parameters()),
        "No parameter of it requires a gradient",
        "Use layers with parameters, registered as attributes or in nn.Sequential",
    )


def _shown(outputs: object) -> str:
    return f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__


def _check_initial(checked: Checked, model: Model, shape: tuple[int, ...]) -> None:
    promise = "initial weights come from PyTorch's generator, which the caller seeds"
    first = dict(_built(model, shape, 10, 1).state_dict())
    with generators.seeded(2):  # NumPy's and Python's are others, PyTorch's is the same
        torch.manual_seed(1)
        before = generators.states()
        again = dict(model.build(shape, 10).state_dict())
        after = generators.states()
    differs = difference(first, again)
    checked.promise(promise, not differs, f"Built again with PyTorch seeded alike, {differs} was another", INITIAL)
    drew = before["NumPy's"] != after["NumPy's"]
    checked.promise(promise, not drew, "Building it drew from NumPy's global generator", INITIAL)
    with generators.seeded(3):
        model.build(shape, 10)
        other = generators.states()
    seeds_itself = other["PyTorch's"] == after["PyTorch's"]
    checked.promise(promise, not seeds_itself, "Built with two seeds, it left PyTorch's generator the same", INITIAL)


def _check_saved(checked: Checked, model: Model, shape: tuple[int, ...], inputs: Tensor) -> None:
    one, other = _built(model, shape, 10, 1).eval(), _built(model, shape, 10, 2).eval()
    other.load_state_dict(one.state_dict())
    with torch.no_grad():
        equal = torch.equal(one(inputs), other(inputs))
    checked.promise(
        "the state_dict holds all that a network's outputs depend on",
        equal,
        "A network with another's state_dict gave other outputs",
        "Register tensors with nn.Parameter or register_buffer, and keep nothing else",
    )


def _check_engines(checked: Checked, model: Model, data: Dataset) -> None:
    # Small steps: engines add up in different orders, which now and then decides between two maxima of a pooling layer.
    trial = Trial.of(FedPU(), FedAvg(rounds=1, batch_size=20, lr=0.001), model, data)
    far = trial.run(LOCAL).far_from(trial.run(REFERENCE))
    checked.promise(
        "all engines give the same model",
        not far,
        f"After a round on the engines 'local' and 'reference' {far} is not the same to 2e-5",
        "Random numbers in training come from PyTorch's layers, such as nn.Dropout",
    )
