"""fedjax: its federated_averaging with a haiku model, on the jit or the pmap backend."""

from __future__ import annotations

import time
from collections.abc import Callable

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from . import common

Params = dict[str, dict[str, jax.Array]]

# Name of a PyTorch layer in the common weights → of the layer in haiku.
NAMES = {
    "paper-cnn": {"0": "conv2_d", "3": "conv2_d_1", "7": "linear", "9": "linear_1"},
    "mlp": {"1": "linear", "3": "linear_1"},
    "colour-cnn": {
        "0": "conv2_d",
        "1": "group_norm",
        "3": "conv2_d_1",
        "4": "group_norm_1",
        "7": "conv2_d_2",
        "8": "group_norm_2",
        "10": "conv2_d_3",
        "11": "group_norm_3",
        "15": "linear",
    },
}


def forward(model: str, images: jax.Array) -> jax.Array:
    """Return the logits of images (n, height, width, channels)."""
    if model == "mlp":
        return hk.Sequential([hk.Flatten(), hk.Linear(200), jax.nn.relu, hk.Linear(10)])(images)
    pool = hk.MaxPool(window_shape=(1, 2, 2, 1), strides=(1, 2, 2, 1), padding="VALID")
    if model == "colour-cnn":
        layers = [*block(32, 2), *block(64, 1), pool, *block(64, 1), *block(128, 2)]
        return hk.Sequential([*layers, lambda x: x.mean(axis=(1, 2)), hk.Linear(10)])(images)
    return hk.Sequential(
        [
            hk.Conv2D(3, 5, padding="VALID"),
            pool,
            jax.nn.relu,
            hk.Conv2D(20, 5, padding="VALID"),
            pool,
            jax.nn.relu,
            hk.Flatten(),
            hk.Linear(50),
            jax.nn.relu,
            hk.Linear(10),
        ]
    )(images)


def block(channels: int, stride: int) -> list[Callable[[jax.Array], jax.Array]]:
    """Return a convolution, normalised in eight groups, and ReLU."""
    padding = [(1, 1), (1, 1)]
    return [hk.Conv2D(channels, 3, stride=stride, padding=padding, with_bias=False), hk.GroupNorm(8), jax.nn.relu]


def to_haiku(model: str, weights: common.Weights) -> Params:
    """Return PyTorch's weights in haiku's layout: channels last, and linear layers transposed."""
    params: Params = {}
    for layer, name in NAMES[model].items():
        weight = weights[f"{layer}.weight"]
        if weight.ndim == 1:
            params[name] = {"scale": jnp.asarray(weight), "offset": jnp.asarray(weights[f"{layer}.bias"])}
            continue
        if weight.ndim == 4:
            weight = weight.transpose(2, 3, 1, 0)
        elif weight.shape[1] == 320:
            weight = weight.reshape(50, 20, 4, 4).transpose(2, 3, 1, 0).reshape(320, 50)
        else:
            weight = weight.T
        params[name] = {"w": jnp.asarray(weight)}
        if f"{layer}.bias" in weights:
            params[name]["b"] = jnp.asarray(weights[f"{layer}.bias"])
    return params


def from_haiku(model: str, params: Params) -> common.Weights:
    """Return haiku's weights in PyTorch's layout."""
    weights: common.Weights = {}
    for layer, name in NAMES[model].items():
        own = params[name]
        weight = np.asarray(own["w"] if "w" in own else own["scale"])
        if weight.ndim == 4:
            weight = weight.transpose(3, 2, 0, 1)
        elif weight.shape[0] == 320:
            weight = weight.reshape(4, 4, 20, 50).transpose(3, 2, 0, 1).reshape(50, 320)
        else:
            weight = weight.T
        weights[f"{layer}.weight"] = weight
        bias = own.get("b", own.get("offset"))
        if bias is not None:
            weights[f"{layer}.bias"] = np.asarray(bias)
    return weights


def main() -> None:
    """Run the task and report."""
    options = common.parser(__doc__)
    options.add_argument("--backend", choices=["jit", "pmap"], default="jit")
    arguments = options.parse_args()
    task = common.Task.of(arguments)
    fedjax.set_for_each_client_backend(arguments.backend)
    images, labels = common.client_data(task)
    images = np.ascontiguousarray(np.moveaxis(images, 2, -1))
    clients = [
        (str(k), fedjax.ClientDataset({"x": images[k], "y": labels[k].astype(np.int32)})) for k in range(task.clients)
    ]
    model = fedjax.create_model_from_haiku(
        hk.transform(lambda batch: forward(task.model, batch["x"])),
        sample_batch={"x": np.zeros((1, *images.shape[2:]), np.float32), "y": np.zeros(1, np.int32)},
        train_loss=lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(common.LEARNING_RATE, momentum=common.MOMENTUM),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        # fedjax fills the last batch up; a client with less than a batch is one batch of what it has, as elsewhere.
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            batch_size=min(common.BATCH_SIZE, task.examples), num_epochs=1, skip_shuffle=task.in_order
        ),
    )
    state = algorithm.init(to_haiku(task.model, common.initial_weights(task.model)))
    # The random keys that the interface asks for are never used by these models: made once, outside of the rounds.
    keys = list(jax.random.split(jax.random.PRNGKey(0), task.clients))
    work = [(name, data, key) for (name, data), key in zip(clients, keys, strict=True)]
    marks = [time.perf_counter()]
    for _ in range(task.all_rounds):
        state, _ = algorithm.apply(state, work)
        jax.block_until_ready(state.params)
        marks.append(time.perf_counter())
    common.report(task, marks, from_haiku(task.model, state.params), ["fedjax", "jax", "jaxlib", "dm-haiku", "numpy"])


if __name__ == "__main__":
    main()
