"""Random faults under random aggregations and methods: a run ends with a finite model, or in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from inputs import guarded
from runs import DIGITS
from tally import Tally

from fedpu.aggregation import AGGREGATIONS
from fedpu.applications.experiment import run
from fedpu.applications.training import Result
from fedpu.config import Config
from fedpu.faults import KINDS
from fedpu.method import METHODS


def hostile(tally: Tally, rng: np.random.Generator, folder: Path) -> Iterator[None]:
    """Train with liars, some trials twice."""
    base = Config.from_dict(DIGITS).with_("aggregation.rounds=3", "aggregation.batch_size=100")
    while True:
        chosen = _drawn(rng)
        about = " ".join(chosen)
        found: list[Result] = []
        end, finding = guarded(lambda: found.append(run(base.with_(*chosen))))  # noqa: B023
        if end == "worked":
            result = found[0]
            finding = _broken(result)
            if finding is None and rng.random() < 0.2:
                again = run(base.with_(*chosen))
                same = all(torch.equal(value, _state(result)[name]) for name, value in _state(again).items())
                finding = None if same else "a second time it ended with other bits"
            end = "ended" if finding is None else "ended wrongly"
        tally.add(end, finding and f"{about}: {finding}")
        yield


def _drawn(rng: np.random.Generator) -> list[str]:
    kinds = rng.choice(KINDS, size=int(rng.integers(1, 4)), replace=False)
    counts = [f"faults.{kind}={int(rng.integers(1, 3))}" for kind in kinds]
    by = [f"faults.{key}={float(10 ** rng.uniform(-1, 5)):.3g}" for key in ("flip_by", "scale_by", "noise_by")]
    more = [f"seed={int(rng.integers(1000))}", f"aggregation.participation={rng.choice([1.0, 0.6])}"]
    names = [f"aggregation.name={rng.choice(list(AGGREGATIONS))}", f"method.name={rng.choice(list(METHODS))}"]
    return [*names, *more, *counts, *by]


def _state(result: Result) -> dict[str, Any]:
    return dict(result.model.state_dict())


def _broken(result: Result) -> str | None:
    if not all(bool(torch.isfinite(value).all()) for value in _state(result).values()):
        return "the model is not finite"
    silent = {str(k) for kind in ("nan", "silent") for k in result.summary["faults"].get(kind, [])}
    if result.config.aggregation.participation == 1:
        for line in result.curve:
            if not silent <= line.get("left_out", {}).keys():
                return f"round {line['round']} does not name all of {sorted(silent)}"
    return None
