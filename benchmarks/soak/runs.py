"""The small runs that a soak starts, kills, damages and resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from fedpu.applications.experiment import run
from fedpu.config import Config

DIGITS: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"clients": 5},
    "labelling": {"positive": 2},
    "model": {"name": "mlp", "hidden": [16]},
    "aggregation": {"rounds": 8, "batch_size": 50, "lr": 0.1},
    "engine": {"workers": 1},
}
VARIANTS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "two workers": ("engine.workers=2",),
    "clients with a state": ("aggregation.name=scaffold",),
    "estimated priors": ("priors.source=estimated", "priors.estimator=count"),
    "held-out data": ("evaluation.validation=0.2",),
    "a network trained alone": ("engine.name=reference", "method.name=aligned"),
    "hostile clients": ("aggregation.name=agreement", "faults.sign_flip=1", "faults.nan=1"),
    "secure aggregation": ("privacy.secure_aggregation=true", "aggregation.rounds=4"),
}


class Ending(NamedTuple):
    """What must be the same whatever happened on the way: the model's bytes, every round, and the outcome."""

    model: bytes
    rounds: list[dict[str, Any]]
    result: dict[str, Any]


def config(variant: str, seed: int) -> Config:
    """Return the configuration of a small run."""
    return Config.from_dict(DIGITS).with_(*VARIANTS[variant], f"seed={seed}")


def ending(folder: Path) -> Ending:
    """Read how a finished run has ended."""
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    return Ending(
        (folder / "model.safetensors").read_bytes(),
        [_timeless(json.loads(line)) for line in lines],
        _timeless(json.loads((folder / "result.json").read_text())),
    )


def ends_as(folder: Path, expected: Ending) -> bool:
    """Has a run ended as one that nobody has disturbed?"""
    try:
        return ending(folder) == expected
    except (OSError, ValueError):
        return False


def undisturbed(variant: str, seed: int, folder: Path) -> Ending:
    """Return how a run ends that nobody disturbs."""
    if not (folder / "result.json").exists():
        run(config(variant, seed), out=folder)
    return ending(folder)


def _timeless(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in ("seconds", "memory_mb")}
