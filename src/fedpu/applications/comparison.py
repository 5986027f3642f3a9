"""Several methods on the same partitions and seeds, and the share of the supervision gap that each closes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedpu.applications.experiment import OnNote, Outcome, run_or_resume
from fedpu.applications.prepared import describe_test, prepare
from fedpu.applications.progress import round_bar
from fedpu.applications.training import OnRound, make_ready
from fedpu.config import Config
from fedpu.data import FROM_PYTHON, Dataset, DataSettings, load
from fedpu.errors import ConfigError, FedpuError
from fedpu.method import METHODS


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
    validations: list[float] | None = None
    """scores on what clients hold out, one per seed; None where they hold nothing out"""
    validation_curves: list[list[tuple[int, float]]] | None = None

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
            **({} if self.epsilon is None else {"epsilon": self.epsilon}),
            **({} if self.validations is None else {"validations": self.validations}),
        }


@dataclass(frozen=True)
class Comparison:
    """All methods on all seeds."""

    config: Config
    seeds: list[int]
    rows: list[Row]
    measured_on: dict[str, Any] | None = None
    """what the accuracies were measured on"""
    left_out: list[str] = field(default_factory=list)
    """methods that these data can't be used with"""

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {
            "seeds": self.seeds,
            "rows": [row.to_dict() for row in self.rows],
            "config": self.config.to_dict(),
            "measured_on": self.measured_on,
            **({"left_out": self.left_out} if self.left_out else {}),
        }


def gap_closed(accuracy: float, lower: float, upper: float) -> float:
    """Return (method − Baseline-1) / (Baseline-2 − Baseline-1), the share of the supervision gap closed.

    Where there are several of one of them, the accuracy is that of the best in the same seed.
    """
    if upper == lower:
        raise FedpuError(f"Baseline-1 and Baseline-2 are equally good ({lower:.4f}): there is no gap to close.")
    return (accuracy - lower) / (upper - lower)


def is_end(method: str, end: Literal["lower", "upper"]) -> bool:
    """Is a method, with whatever settings, a Baseline-1 (lower) or a Baseline-2 (upper)?"""
    return METHODS[method.partition("+")[0]].end_of_gap == end


def variant(config: Config, text: str) -> Config:
    """Return the configuration with the method of ``"name"`` or ``"name+key=value+…"``.

    A key belongs to the method unless it names a table: ``fedpu+lent=off+aggregation.lr=0.1``.
    """
    name, *changes = text.split("+")
    METHODS[name]
    overrides = [change if "." in change.partition("=")[0] else f"method.{change}" for change in changes]
    return config.with_(f"method.name={name}", *overrides)


def folder_name(method: str, seed: int) -> str:
    """Return the name of a run's folder, without characters that some file systems refuse."""
    return f"{method}-seed{seed}".replace(":", ".").replace('"', "")


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
    dataset: Dataset | None = None,
    out: str | Path | None = None,
    on_run: Callable[[str, int], OnRound] | None = None,
    on_note: OnNote | None = None,
    progress: bool = False,
) -> Comparison:
    """Train every method on every seed. With ``out``, runs found there finished are used, and others are resumed.

    A method may carry settings of its own, as in :func:`variant`. Every method is checked before the first is trained.
    ``data`` replaces the configured data; ``dataset`` is the configured data, where they were loaded already.
    Methods that need every label are left out, with a note, where the data hold examples without one.
    ``progress`` shows one bar per run.
    """
    methods = split_methods(methods) if isinstance(methods, str) else methods
    if not methods or not seeds:
        raise ConfigError("A comparison needs at least one method and one seed.")
    chosen = {method: variant(config, method) for method in methods}
    if data is None:
        data = dataset or load(config.data)
    else:
        config = config.model_copy(update={"data": DataSettings(name=f"{FROM_PYTHON}{data.name}")})
        chosen = {method: variant(config, method) for method in methods}
    on = describe_test(data)
    if on is None:
        raise ConfigError(f"A comparison is of accuracies, and '{data.name}' has no test set. Set data.test_fraction.")
    methods, left_out = _usable(methods, chosen, data, on_note)
    _check_all(chosen, methods, seeds, data)
    results: dict[tuple[str, int], Outcome] = {}
    for seed in seeds:
        for method in methods:
            on_round = on_run(method, seed) if on_run else None
            folder = None if out is None else Path(out) / folder_name(method, seed)
            seeded = chosen[method].with_(f"seed={seed}")
            with round_bar(f"{method}, seed {seed}", seeded.aggregation.rounds, progress and on_round is None) as bar:
                told = on_round or bar
                results[method, seed] = run_or_resume(seeded, folder, data=data, on_round=told, on_note=on_note)
    return Comparison(config, list(seeds), [_row(method, list(seeds), results) for method in methods], on, left_out)


def _usable(
    methods: Sequence[str], chosen: dict[str, Config], data: Dataset, on_note: OnNote | None
) -> tuple[list[str], list[str]]:
    """Return the methods that the data have labels enough for, and the others."""
    if not bool((data.labels < 0).any()):
        return list(methods), []
    usable = [method for method in methods if not chosen[method].method.fully_labelled]
    left_out = [method for method in methods if method not in usable]
    if not usable:
        raise ConfigError(f"'{data.name}' holds unlabelled examples (−1), and {', '.join(left_out)} needs every label.")
    if left_out and on_note:
        on_note(f"Left out: {', '.join(left_out)}, which needs every label. '{data.name}' holds unlabelled examples.")
    return usable, left_out


def _check_all(chosen: dict[str, Config], methods: Sequence[str], seeds: Sequence[int], data: Dataset) -> None:
    """Refuse what can't be run before anything is: every method in the first seed, and the labelling of each seed."""
    for number, seed in enumerate(seeds):
        for method in methods if number == 0 else methods[:1]:
            seeded = chosen[method].with_(f"seed={seed}")
            try:
                prepared = prepare(seeded, data)
                if number == 0:
                    make_ready(seeded, prepared)
            except FedpuError as error:
                raise type(error)(f"{method} (seed {seed}) can't be run, and nothing was trained: {error}") from error


def _row(method: str, seeds: list[int], results: dict[tuple[str, int], Outcome]) -> Row:
    def accuracies(name: str) -> list[float]:
        return [results[name, seed].summary["accuracy"] for seed in seeds]

    names = dict.fromkeys(name for name, _ in results)
    gaps = None
    lower = [accuracies(name) for name in names if is_end(name, "lower")]
    upper = [accuracies(name) for name in names if is_end(name, "upper")]
    if lower and upper:
        ends = ([max(values) for values in zip(*end, strict=True)] for end in (lower, upper))
        triples = zip(accuracies(method), *ends, strict=True)
        gaps = [gap_closed(*triple) for triple in triples if triple[1] != triple[2]] or None
    runs = [results[method, seed] for seed in seeds]
    seconds = sum(run.summary["seconds"] for run in runs)
    spent = [run.summary.get("epsilon") for run in runs]
    epsilon = max((value for value in spent if value is not None), default=None)
    row = Row(method, accuracies(method), gaps, [run.accuracies for run in runs], seconds, epsilon)
    if any(run.summary.get("validation") is None for run in runs):
        return row
    scores = [run.summary["validation"] for run in runs]
    return replace(row, validations=scores, validation_curves=[run.validations for run in runs])
