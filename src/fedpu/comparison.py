"""Several methods on the same partitions and seeds, and the share of the supervision gap that each closes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpu.config import Config
from fedpu.data import FROM_PYTHON, Dataset, DataSettings, load
from fedpu.engine import LocalEngine
from fedpu.errors import ConfigError, FedpuError
from fedpu.experiment import OnRound, Result, prepare, resume, run_prepared
from fedpu.method import METHODS
from fedpu.record import RunDirectory

LOWER, UPPER = "positive-only", "supervised"


@dataclass(frozen=True)
class Row:
    """A method's accuracies, one a seed, and how much of the gap between the two baselines it closed in each."""

    method: str
    accuracies: list[float]
    gap_closed: list[float] | None
    curves: list[list[tuple[int, float]]]
    seconds: float
    epsilon: float | None = None
    """the largest ε spent; None without differential privacy"""

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def std(self) -> float:
        """Standard deviation over the seeds; zero for one seed."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            "method": self.method,
            "accuracy": self.mean,
            "std": self.std,
            "accuracies": self.accuracies,
            "gap_closed": None if self.gap_closed is None else statistics.fmean(self.gap_closed),
            "seconds": self.seconds,
        } | ({} if self.epsilon is None else {"epsilon": self.epsilon})


@dataclass(frozen=True)
class Comparison:
    """All methods on all seeds."""

    config: Config
    seeds: list[int]
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {
            "seeds": self.seeds,
            "rows": [row.to_dict() for row in self.rows],
            "config": self.config.to_dict(),
        }


def gap_closed(accuracy: float, lower: float, upper: float) -> float:
    """Return (method − Baseline-1) / (Baseline-2 − Baseline-1), the share of the supervision gap closed."""
    if upper == lower:
        raise FedpuError(f"Baseline-1 and Baseline-2 are equally good ({lower:.4f}): there is no gap to close.")
    return (accuracy - lower) / (upper - lower)


def variant(config: Config, text: str) -> Config:
    """Return the configuration with the method of ``"name"`` or ``"name+key=value+…"``.

    A key belongs to the method unless it names a table: ``fedpu+lent=off+aggregation.lr=0.1``.
    """
    name, *changes = text.split("+")
    METHODS[name]
    overrides = [change if "." in change.partition("=")[0] else f"method.{change}" for change in changes]
    return config.with_(f"method.name={name}", *overrides)


def split_methods(text: str) -> list[str]:
    """Split ``"fedpu,fedpu+labelling.positive=[1,2]"`` at the commas outside brackets."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def compare(
    config: Config,
    methods: Sequence[str] | str,
    seeds: Sequence[int],
    *,
    data: Dataset | None = None,
    out: str | Path | None = None,
    on_run: Callable[[str, int], OnRound] | None = None,
) -> Comparison:
    """Train every method on every seed. With ``out``, runs found there finished are used, and others are resumed.

    A method may carry settings of its own, as in :func:`variant`.
    """
    methods = split_methods(methods) if isinstance(methods, str) else methods
    if not methods or not seeds:
        raise ConfigError("A comparison needs at least one method and one seed.")
    chosen = {method: variant(config, method) for method in methods}
    if data is None:
        data = load(config.data)
    else:
        config = config.model_copy(update={"data": DataSettings(name=f"{FROM_PYTHON}{data.name}")})
        chosen = {method: variant(config, method) for method in methods}
    results: dict[tuple[str, int], tuple[dict[str, Any], list[dict[str, Any]]]] = {}
    for seed in seeds:
        for method in methods:
            on_round = on_run(method, seed) if on_run else None
            folder = None if out is None else Path(out) / f"{method}-seed{seed}"
            results[method, seed] = _one(chosen[method].with_(f"seed={seed}"), data, folder, on_round)
    return Comparison(config, list(seeds), [_row(method, list(seeds), results) for method in methods])


def _one(
    config: Config, data: Dataset, out: Path | None, on_round: OnRound | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if out is None or not (out / "config.toml").exists():
        return _outcome(run_prepared(config, prepare(config, data), out, on_round))
    directory = RunDirectory.open(out)
    if _without_engine(directory.config()) != _without_engine(config):
        raise FedpuError(f"'{out}' holds a run with another configuration. Choose another --out, or delete it.")
    summary = directory.result()
    if summary is not None:
        return summary, directory.rounds()
    return _outcome(resume(out, data=data, on_round=on_round))


def _without_engine(config: Config) -> Config:
    """The engine and its workers do not change what comes out."""
    return config.model_copy(update={"engine": LocalEngine()})


def _outcome(result: Result) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return result.summary, result.curve


def _row(
    method: str, seeds: list[int], results: dict[tuple[str, int], tuple[dict[str, Any], list[dict[str, Any]]]]
) -> Row:
    def accuracies(name: str) -> list[float]:
        return [results[name, seed][0]["accuracy"] for seed in seeds]

    names = {name for name, _ in results}
    gaps = None
    if {LOWER, UPPER} <= names:
        triples = zip(accuracies(method), accuracies(LOWER), accuracies(UPPER), strict=True)
        gaps = [gap_closed(*triple) for triple in triples if triple[1] != triple[2]] or None
    curves = [
        [(line["round"], line["accuracy"]) for line in results[method, seed][1] if "accuracy" in line] for seed in seeds
    ]
    seconds = sum(results[method, seed][0]["seconds"] for seed in seeds)
    spent = [results[method, seed][0].get("epsilon") for seed in seeds]
    epsilon = max((value for value in spent if value is not None), default=None)
    return Row(method, accuracies(method), gaps, curves, seconds, epsilon)
