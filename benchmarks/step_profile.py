"""Where the time of one step of ``paper-cnn`` goes, and how far that is from what the core can do.

``.venv/bin/python benchmarks/step_profile.py`` prints a table: the best of many runs of every part of a step (batch
100, one thread), beside PyTorch's own layers with automatic differentiation, and beside the time that the same
floating-point operations would take at the speed of this machine's best matrix product.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from fedpu.applications.bench import machine
from fedpu.applications.made_up import MadeUp
from fedpu.applications.prepared import prepare
from fedpu.applications.training import job_of
from fedpu.config import Config
from fedpu.engine.pool import keep_freed_memory
from fedpu.engine.stacked import StackedNetwork
from fedpu.engine.stacked.plan import Columns, Step
from fedpu.risk import co_negatives, linear_risk

BATCH = 100
REPEATS = 200
# Multiply-adds of one image: forward, weights' gradient, inputs' gradient (the first layer needs none).
CONV1, CONV2, LINEAR = 3 * 25 * 576, 20 * 75 * 64, 320 * 50 + 50 * 10
OPERATIONS = 2 * BATCH * (2 * CONV1 + 3 * CONV2 + 3 * LINEAR)


def best(run: Callable[[], object], repeats: int | None = None) -> float:
    """Return the fastest of many runs in milliseconds."""
    fastest = float("inf")
    for _ in range(repeats or REPEATS):
        started = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - started)
    return 1000 * fastest


def matrix_product_speed() -> float:
    """Return the operations a second of the best matrix product here."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return 2 * 1024**3 / (best(lambda: a @ b, 30) / 1000)


def profile() -> dict[str, float]:
    """Return milliseconds of every part of a step, and of a whole one."""
    config = Config.load(overrides=["labelling.overlap=true"])
    ready = prepare(config, MadeUp(examples=6000).dataset())
    job = job_of(config, ready.federation)
    columns, network = Columns(job), StackedNetwork.of(job.initial_model())
    assert network is not None
    summary = job.federation.summary(torch.tensor([0]))
    constants = job.method.constants(summary, co_negatives(job.federation.positive), 10)
    table, form = job.method.table(constants), job.method.linear_form()
    assert form is not None
    step = Step(torch.arange(BATCH)[None], {})
    flat = network.flatten(dict(job.initial_model().state_dict()))[None].clone()
    gradient, velocity = torch.empty_like(flat), torch.zeros_like(flat)
    inputs, labels = columns.only(step), columns.labels(step)
    parts = {"gather and normalise": best(lambda: (columns.only(step), columns.labels(step)))}

    activations, parameters, slots = [inputs], [], []
    views = network.views(flat)
    for layer in network.layers:
        mine, views = views[: len(layer.sizes)], views[len(layer.sizes) :]
        parameters.append(mine)
        activations.append(layer.forward(activations[-1], mine))
    outs = network.views(gradient)
    for layer in network.layers:
        slots.append(outs[: len(layer.sizes)])
        outs = outs[len(layer.sizes) :]
    for index, layer in enumerate(network.layers):
        name = f"{index + 1} {type(layer).__name__}"
        parts[f"{name} forward"] = best(partial(layer.forward, activations[index], parameters[index]))
    logits = activations[-1].transpose(1, 2)
    parts["risk and its gradient"] = best(lambda: linear_risk(logits, labels, table, form))
    slopes = linear_risk(logits, labels, table, form)[0].transpose(1, 2)
    for index in range(len(network.layers) - 1, -1, -1):
        layer, first = network.layers[index], index == 0
        backward = partial(layer.backward, slopes, parameters[index], slots[index], not first)
        parts[f"{index + 1} {type(layer).__name__} backward"] = best(backward)
        before = backward()
        slopes = slopes if before is None else before
    parts["momentum and step"] = best(lambda: flat.add_(velocity.mul_(0.5).add_(gradient), alpha=-1e-9))
    return parts


def plain_step() -> float:
    """Return milliseconds of a step with PyTorch's own layers, supervised."""
    network = Config().model.build((1, 28, 28), 10)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.5)
    x, y = torch.randn(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))

    def step() -> None:
        optimiser.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimiser.step()

    return best(step)


def main() -> None:
    """Measure, print, and write the result beside the other benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder for step_profile.json and step_profile.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    parts, plain, speed = profile(), plain_step(), matrix_product_speed()
    total, limit = sum(parts.values()), 1000 * OPERATIONS / speed
    rows = [f"| {name} | {ms:.3f} | {ms / total:.0%} |" for name, ms in parts.items() if ms / total >= 0.005]
    lines = [
        "| part of a step | ms | share |",
        "| --- | ---: | ---: |",
        *rows,
        f"| **a step of ours** | **{total:.2f}** | |",
    ]
    lines.append(f"| a step of PyTorch's own layers, supervised | {plain:.2f} | |")
    lines.append(f"| the step's operations at {speed / 1e9:.0f} GFLOP/s, the best matrix product | {limit:.2f} | |")
    print("\n".join(lines))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        data = {
            "parts": parts,
            "total": total,
            "plain": plain,
            "gflops": speed / 1e9,
            "limit": limit,
            "machine": machine(),
        }
        (arguments.out / "step_profile.json").write_text(json.dumps(data, indent=2) + "\n")
        (arguments.out / "step_profile.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
