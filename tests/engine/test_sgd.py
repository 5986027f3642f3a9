"""Our SGD takes the steps of PyTorch's, to the bit, and leaves PyTorch's compiler where it is."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from fedpu.engine.sgd import Sgd

TRAINS = """
import sys
from fedpu.applications.experiment import run
from fedpu.config import Config
tiny = {"data": {"name": "digits"}, "partition": {"clients": 2}, "labelling": {"positive": 5},
        "model": {"name": "mlp"}, "aggregation": {"rounds": 1}}
for engine in ("reference", "local"):
    run(Config.from_dict(tiny | {"engine": {"name": engine, "workers": 1}}))
print([name for name in ("torch._dynamo", "scipy.stats", "scipy.optimize", "flwr", "ray") if name in sys.modules])
"""


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_it_takes_the_steps_of_pytorchs(momentum: float, weight_decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    first = [torch.randn(size, generator=generator) for size in ((7, 5), (5,), (3,))]
    ours, theirs = ([value.clone().requires_grad_() for value in first] for _ in range(2))
    mine = Sgd(ours, 0.1, momentum, weight_decay)
    other = torch.optim.SGD(theirs, lr=0.1, momentum=momentum, weight_decay=weight_decay)
    for step in range(6):
        mine.zero_grad()
        other.zero_grad()
        pulls = [torch.randn(value.shape, generator=generator) for value in first]
        for values in (ours, theirs):
            # The last has no gradient in the first steps, as a layer that is not used has none.
            used = list(zip(values, pulls, strict=True))[: 2 if step < 2 else 3]
            sum((pull * value.sin()).sum() for value, pull in used).backward()
        mine.step()
        other.step()
    assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[2], first[2])


def test_training_imports_nothing_that_it_does_not_need() -> None:
    done = subprocess.run([sys.executable, "-c", TRAINS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
