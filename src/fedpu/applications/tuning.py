"""Choosing settings by the score that needs no hidden label, and by nothing else.

Every combination of settings is a run in which clients hold a share of their own data out of training. The one with the
lowest score there, in the mean over seeds, is chosen. Test accuracy is in the record of each run; nothing here reads it
to decide.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpu.applications.comparison import split_methods
from fedpu.applications.experiment import OnNote, run_or_resume
from fedpu.applications.recording import RoundLine
from fedpu.applications.training import OnRound
from fedpu.config import Config
from fedpu.data import FROM_PYTHON, Dataset, load
from fedpu.errors import ConfigError, FedpuError, TrainingError
from fedpu.randomness import numpy_generator
from fedpu.record import RunDirectory

HELD_OUT = 0.2
"""share of their data that clients hold out where the configuration says nothing"""
STAGES = (0.25, 0.5, 1.0)
"""where the worse half of the combinations is dropped: after these shares of the rounds"""
FIXED = {
    "seed": "it is averaged over: use --seeds",
    "data": "a score on other data can't be compared",
    "partition": "a score on other clients can't be compared",
    "labelling": "a score on other labels can't be compared",
    "evaluation": "a score on other held-out data can't be compared",
}
"""what can't be chosen by the score, and why"""
LONGEST_NAME = 150


@dataclass(frozen=True)
class Trial:
    """A combination of settings: what was measured in each seed, up to the round that it reached."""

    settings: tuple[str, ...]
    scores: list[float]
    """on what clients hold out; lower is better"""
    labelled_accuracies: list[float | None]
    test_accuracies: list[float]
    """not used"""
    rounds: int
    """fewer than configured where it was dropped on the way"""
    error: str | None = None
    """why it could not be trained to its end"""

    @property
    def name(self) -> str:
        """Its settings in one line."""
        return " ".join(self.settings)

    @property
    def score(self) -> float:
        """Mean over seeds; infinite where training failed, or where the score of a model is no number."""
        if self.error is not None or not all(map(math.isfinite, self.scores)):
            return math.inf
        return statistics.fmean(self.scores)

    @property
    def std(self) -> float:
        """Standard deviation over seeds; zero for one seed."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else 0.0

    def to_dict(self, show_test: bool) -> dict[str, Any]:
        """Return the trial as plain data."""
        told: dict[str, Any] = {
            "settings": list(self.settings),
            "score": None if self.error is not None else self.score,
            "std": self.std,
            "scores": self.scores,
            "labelled_accuracies": self.labelled_accuracies,
            "rounds": self.rounds,
        }
        told |= {} if self.error is None else {"error": self.error}
        return told | ({"test_accuracies_not_used": self.test_accuracies} if show_test else {})


@dataclass(frozen=True)
class Tuning:
    """All combinations that were tried, and the best of them."""

    config: Config
    """what they were tried on"""
    seeds: list[int]
    trials: list[Trial]
    """the best first; those that were dropped on the way, and those that failed, last"""
    combinations: int
    """how many there are, tried or not"""

    @property
    def best(self) -> Trial:
        """The combination with the lowest score."""
        return self.trials[0]

    @property
    def best_config(self) -> Config:
        """The configuration that was given, with the best settings: nothing is held out unless it says so."""
        return self.config.with_(*self.best.settings)

    def to_dict(self, show_test: bool = False) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "seeds": self.seeds,
            "chosen": list(self.best.settings),
            "combinations": self.combinations,
            "trials": [trial.to_dict(show_test) for trial in self.trials],
            "config": self.config.to_dict(),
        }


def combinations(over: Iterable[str]) -> list[tuple[str, ...]]:
    """Return every combination of ``"table.key=value,value,…"``, each as overrides of a configuration."""
    axes: dict[str, list[str]] = {}
    for text in over:
        key, equals, values = (part.strip() for part in text.partition("="))
        given = [_number(value) for value in split_methods(values)]
        if not equals or not given:
            raise ConfigError(f"'{text}' can't be tried: write table.key=value,value, such as aggregation.lr=0.03,0.1.")
        table = key.partition(".")[0]
        if table in FIXED:
            raise ConfigError(f"'{key}' can't be chosen by the score: {FIXED[table]}.")
        if key in axes:
            raise ConfigError(f"'{key}' is given twice: put all of its values behind one --over.")
        axes[key] = list(dict.fromkeys(given))
    if not axes:
        raise ConfigError("There is nothing to choose from: give --over table.key=value,value at least once.")
    return [
        tuple(f"{key}={value}" for key, value in zip(axes, values, strict=True))
        for values in itertools.product(*axes.values())
    ]


def tune(
    config: Config,
    over: Sequence[str],
    seeds: Sequence[int],
    *,
    validation: float | None = None,
    most: int | None = None,
    halve: bool = False,
    data: Dataset | None = None,
    out: str | Path | None = None,
    on_run: Callable[[str, int], OnRound] | None = None,
    on_note: OnNote | None = None,
) -> Tuning:
    """Try combinations of settings and put the best first.

    ``validation`` is the share that clients hold out; by default the configuration's, or a fifth. Of more than ``most``
    combinations that many are drawn at random. With ``halve`` the worse half of them is dropped after a quarter of the
    rounds, and again after half. With ``out``, finished runs that are there are used, and others are gone on with.
    """
    every = combinations(over)
    chosen = every if most is None or most >= len(every) else _drawn(every, most, config.seed)
    share = validation if validation is not None else config.evaluation.validation or HELD_OUT
    if not share or not seeds:
        raise ConfigError("Choosing needs at least one seed, and data that clients hold out: evaluation.validation.")
    if data is None:
        data = load(config.data)
    else:
        described = config.data.model_copy(update={"name": f"{FROM_PYTHON}{data.name}"})
        config = config.model_copy(update={"data": described})
    configs = {settings: config.with_(f"evaluation.validation={share}", *settings) for settings in chosen}
    _refuse_mixture(configs)
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        search = _Search(configs, list(seeds), data, folder, on_run, on_note)
        return Tuning(config, list(seeds), search.run(STAGES if halve else STAGES[-1:]), len(every))


class _Search:
    """Trains combinations stage by stage; everything that must survive a kill is in the run directories."""

    def __init__(
        self,
        configs: dict[tuple[str, ...], Config],
        seeds: list[int],
        data: Dataset,
        folder: Path,
        on_run: Callable[[str, int], OnRound] | None,
        on_note: OnNote | None,
    ) -> None:
        self._configs = configs
        self._seeds = seeds
        self._data = data
        self._folder = folder
        self._on_run = on_run
        self._on_note = on_note

    def run(self, stages: Sequence[float]) -> list[Trial]:
        """Return all trials, the best first."""
        left, dropped = list(self._configs), list[Trial]()
        for stage in stages:
            trials = sorted((self._trial(settings, stage) for settings in left), key=lambda trial: trial.score)
            failed = [trial for trial in trials if trial.error is not None]
            fine = trials[: len(trials) - len(failed)]
            if not fine:
                raise FedpuError(f"No combination could be trained. The first, {failed[0].name}: {failed[0].error}")
            keep = len(fine) if stage == stages[-1] else math.ceil(len(left) / 2)
            left = [trial.settings for trial in fine[:keep]]
            dropped = [*fine[keep:], *failed, *dropped]
        return [*fine, *dropped]

    def _trial(self, settings: tuple[str, ...], stage: float) -> Trial:
        config = self._configs[settings]
        last = _last_round(config, stage)
        lines: list[RoundLine] = []
        error = None
        for seed in self._seeds:
            try:
                lines.append(self._train(settings, config.with_(f"seed={seed}"), last))
            except TrainingError as failure:  # a learning rate that is too large is an answer, too
                error = str(failure)
                break
        return Trial(
            settings,
            [line["validation"] for line in lines],
            [line["validation_accuracy"] for line in lines],
            [line["accuracy"] for line in lines],
            last,
            error,
        )

    def _train(self, settings: tuple[str, ...], config: Config, last: int) -> RoundLine:
        """Return what was measured in round ``last``, after going there."""
        folder = self._folder / f"{folder_name(settings)}-seed{config.seed}"
        directory = RunDirectory(folder)
        done = directory.rounds() if directory.config_file.exists() else []
        if len(done) >= last and directory.config().gives_same_as(config):
            return done[last - 1]
        told = self._on_run(" ".join(settings), config.seed) if self._on_run else None

        def on_round(line: RoundLine) -> None:
            if told:
                told(line)
            if line["round"] == last < config.aggregation.rounds:
                raise _Enough(line)

        try:
            return run_or_resume(config, folder, data=self._data, on_round=on_round, on_note=self._on_note).curve[-1]
        except _Enough as enough:
            return enough.line


class _Enough(Exception):
    """A run has come as far as it is to come for now."""

    def __init__(self, line: RoundLine) -> None:
        super().__init__()
        self.line = line


def _last_round(config: Config, stage: float) -> int:
    """Return the round after which a stage ends: one that is measured."""
    every, rounds = config.evaluation.every, config.aggregation.rounds
    return min(rounds, every * math.ceil(stage * rounds / every))


def _drawn(every: list[tuple[str, ...]], count: int, seed: int) -> list[tuple[str, ...]]:
    places = numpy_generator(seed, "trials").choice(len(every), count, replace=False)
    return [every[place] for place in sorted(places.tolist())]


def _refuse_mixture(configs: dict[tuple[str, ...], Config]) -> None:
    if len({config.method.fully_labelled for config in configs.values()}) > 1:
        raise ConfigError(
            "A method that is given every label is scored on all of them, which can't be compared with the others: "
            "choose its settings by themselves."
        )


def _number(text: str) -> str:
    """Return ``.03`` as TOML has it."""
    return re.sub(r"^([+-]?)\.(?=\d)", r"\g<1>0.", text)


def folder_name(settings: Sequence[str]) -> str:
    """Return a name that a file system takes, another one for every combination."""
    text = "+".join(settings)
    name = re.sub(r"[^A-Za-z0-9.=+_-]", "_", text)
    if name == text and len(name) <= LONGEST_NAME:
        return name
    return f"{name[:LONGEST_NAME]}-{zlib.crc32(text.encode()):08x}"
