"""The runs of a page, read from their directories and grouped: one group per method, one run per seed.

Configurations are read as plain tables, so that a page can be made where a user's own classes can't be imported.
"""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedpu.applications.comparison import folder_name, gap_closed
from fedpu.errors import ConfigError, FedpuError
from fedpu.labelling import Holdings
from fedpu.method import METHODS, Method
from fedpu.record import RunDirectory, reading

Table = dict[str, Any]
SAME_DATA = ("data", "partition", "labelling")


def is_number(value: Any) -> bool:
    """Can it be drawn? Not where nothing was measured, nor NaN or infinity."""
    return isinstance(value, int | float) and math.isfinite(value)


@dataclass(frozen=True)
class RecordedRun:
    """What a run directory tells."""

    path: Path
    config: Table
    rounds: list[Table]
    result: Table | None
    """None: the run is not finished"""

    @classmethod
    def read(cls, path: Path) -> RecordedRun:
        """Read a run directory, finished or not."""
        directory = RunDirectory.open(path)
        with reading(directory.config_file):
            config = tomllib.loads(directory.config_file.read_text("utf-8"))
        return cls(path, config, directory.rounds(), directory.result())

    @property
    def seed(self) -> int:
        """The seed."""
        return int(self.config.get("seed", 0))

    @property
    def facts(self) -> Table:
        """The result; of a run that is not finished, what its last round tells."""
        return self.result if self.result is not None else (self.rounds[-1] if self.rounds else {})

    @property
    def accuracy(self) -> float | None:
        """Test accuracy of the last model that was measured, between 0 and 1."""
        found = self.facts.get("accuracy")
        if found is None:
            found = next((line["accuracy"] for line in reversed(self.rounds) if "accuracy" in line), None)
        return None if found is None else float(found)

    @property
    def classes(self) -> list[str]:
        """The names of the classes, as far as the record has them."""
        held = self.holdings
        if held is not None:
            return list(held.classes)
        known = self.facts.get("classes") or range(len(self.facts.get("per_class_accuracy") or ()))
        return [str(name) for name in known]

    @cached_property
    def holdings(self) -> Holdings | None:
        """What every client holds; nothing where the record does not say."""
        told = self.facts.get("holdings")
        return None if told is None else Holdings.from_dict(told)

    @property
    def confusion(self) -> list[list[int | float]] | None:
        """How many test examples of each class (rows) were taken for which (columns); nothing where not recorded."""
        for place in (self.facts, self.facts.get("measures")):
            found = place.get("confusion") if isinstance(place, Mapping) else None
            if isinstance(found, Mapping):
                found = found.get("counts", found.get("matrix"))
            if isinstance(found, list) and found and all(isinstance(row, list) for row in found):
                return found
        return None

    @property
    def measured_on(self) -> Table:
        """On what it is measured, as far as the record says; of a run that is not finished, in its last line."""
        told = self.facts.get("measured_on")
        if isinstance(told, str):
            return {"set": told, "is_accuracy": False}
        return told or {}

    def curve(self, key: str) -> dict[int, float]:
        """Return a number of each round that has it."""
        return {line["round"]: float(line[key]) for line in self.rounds if is_number(line.get(key))}


@dataclass(frozen=True)
class Group:
    """A method's runs, one per seed."""

    label: str
    runs: list[RecordedRun]

    @property
    def method(self) -> type[Method] | None:
        """The method's class; nothing where it can't be found here."""
        try:
            return METHODS[self.config["method"]["name"]]
        except (ConfigError, KeyError):
            return None

    @property
    def config(self) -> Table:
        """The configuration of the first run."""
        return self.runs[0].config

    @property
    def accuracies(self) -> dict[int, float]:
        """Accuracy by seed, of the runs that were measured."""
        return {run.seed: run.accuracy for run in self.runs if run.accuracy is not None}

    @property
    def mean(self) -> float | None:
        """Mean accuracy over the seeds."""
        return statistics.fmean(self.accuracies.values()) if self.accuracies else None

    @property
    def finished(self) -> bool:
        """Are all of its runs?"""
        return all(run.result is not None for run in self.runs)

    def ends(self, end: Literal["lower", "upper"]) -> bool:
        """Is it a Baseline-1 (lower) or a Baseline-2 (upper)?"""
        return self.method is not None and self.method.end_of_gap == end

    @property
    def sees_all_labels(self) -> bool:
        """Is it given labels that clients do not have?"""
        return self.method is not None and self.method.fully_labelled


def is_accuracy(groups: Sequence[Group]) -> bool:
    """Were all measured on examples that stand for the data? Labelled ones alone, of partly labelled data, do not."""
    return all(run.measured_on.get("is_accuracy", True) for group in groups for run in group.runs)


def gaps(groups: Sequence[Group]) -> dict[str, list[float]]:
    """Return the share of the supervision gap that each group closes, for every seed that has both ends."""
    found: dict[str, list[float]] = {}
    for group in groups:
        for seed, accuracy in group.accuracies.items():
            low = _best(groups, "lower", seed)
            high = _best(groups, "upper", seed)
            if low is not None and high is not None and low != high:
                found.setdefault(group.label, []).append(gap_closed(accuracy, low, high))
    return found


def _best(groups: Sequence[Group], end: Literal["lower", "upper"], seed: int) -> float | None:
    return max(
        (group.accuracies[seed] for group in groups if group.ends(end) and seed in group.accuracies), default=None
    )


def same_data(groups: Sequence[Group]) -> bool:
    """Are all groups on the same data, partition and seeds, so that their numbers can be compared?"""
    first = groups[0]
    return all(
        [group.config.get(name) for name in SAME_DATA] == [first.config.get(name) for name in SAME_DATA]
        and {run.seed for run in group.runs} == {run.seed for run in first.runs}
        for group in groups
    )


def read_groups(paths: Sequence[Path]) -> list[Group]:
    """Read run directories, and all runs of folders such as 'fedpu compare' makes."""
    named: dict[Path, str] = {}
    for path in paths:
        named |= _runs_in(path)
    if not named:
        raise FedpuError(f"There is no run in {' or '.join(map(repr, map(str, paths)))}.")
    return groups_of([RecordedRun.read(path) for path in named], named)


def _runs_in(path: Path) -> dict[Path, str]:
    """Return the runs of a folder, with the labels that a comparison gave them."""
    if (path / "config.toml").is_file():
        return {path: ""}
    inside = sorted(file.parent for file in path.glob("*/config.toml"))
    if not inside:
        raise FedpuError(
            f"'{path}' is neither a run directory nor a folder of some: there is no config.toml. "
            "'fedpu run' and 'fedpu compare' print where they record."
        )
    comparison, labels = path / "comparison.json", {}
    if comparison.is_file():
        with reading(comparison):
            told = json.loads(comparison.read_text("utf-8"))
            labels = {folder_name(row["method"], seed): row["method"] for row in told["rows"] for seed in told["seeds"]}
        order = list(labels)
        inside.sort(key=lambda run: order.index(run.name) if run.name in labels else len(order))
    return {run: labels.get(run.name, "") for run in inside}


def groups_of(runs: Sequence[RecordedRun], labels: Mapping[Path, str]) -> list[Group]:
    """Put runs together that differ in nothing but the seed, and name them by what sets them apart."""
    found: dict[str, list[RecordedRun]] = {}
    for run in runs:
        own = {key: value for key, value in run.config.items() if key not in ("seed", "engine")}
        key = labels.get(run.path) or json.dumps(own, sort_keys=True, default=str)
        found.setdefault(key, []).append(run)
    names = _names({key: mine[0].config for key, mine in found.items()}, set(labels.values()))
    return [Group(names[key], sorted(mine, key=lambda run: run.seed)) for key, mine in found.items()]


def _names(configs: Mapping[str, Table], given: set[str]) -> dict[str, str]:
    """Return the name of each group: its method's, and where others have the same, the settings that differ."""
    names = {key: key if key in given else str(config["method"]["name"]) for key, config in configs.items()}
    for key, config in configs.items():
        rivals = [other for name, other in configs.items() if names[name].partition("+")[0] == names[key]]
        if key not in given and len(rivals) > 1:
            flat, others = _flat(config), [_flat(other) for other in rivals]
            apart = [name for name in flat if any(other.get(name) != flat[name] for other in others)]
            names[key] += "".join(f"+{name.removeprefix('method.')}={flat[name]}" for name in apart)
    return names


def _flat(config: Table) -> dict[str, Any]:
    return {
        f"{table}.{key}": value
        for table, values in config.items()
        if isinstance(values, dict) and table != "engine"
        for key, value in values.items()
    }
