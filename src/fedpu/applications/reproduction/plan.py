"""What has to be run for some tables: every distinct configuration once, whatever the number of cells it fills."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedpu.applications.experiment import Outcome
from fedpu.config import Config
from fedpu.errors import ConfigError, FedpuError, did_you_mean
from fedpu.paper import Cell, Scale, Table, tables
from fedpu.record import RunDirectory, reading, write_atomically
from fedpu.valid_json import json_text


@dataclass(frozen=True)
class PlannedRun:
    """A run of a reproduction: a configuration, and where its outcome goes.

    ``<name>.json`` holds what is worth keeping for ever: configuration, result and learning curve. The run directory
    with its checkpoint and model is ``runs/<name>``.
    """

    name: str
    config: Config
    out: Path

    @property
    def file(self) -> Path:
        """The outcome, there once the run is finished."""
        return self.out / f"{self.name}.json"

    @property
    def directory(self) -> RunDirectory:
        """The run directory."""
        return RunDirectory(self.out / "runs" / self.name)

    def rounds_done(self) -> int:
        """Return how many rounds are finished."""
        file = self.directory.rounds_file
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def outcome(self) -> dict[str, Any] | None:
        """Return the kept outcome, or nothing; refuse that of other settings."""
        if not self.file.exists():
            return None
        with reading(self.file):
            kept: dict[str, Any] = json.loads(self.file.read_text("utf-8"))
            float(kept["result"]["accuracy"])
            same = Config.from_dict(kept["config"]).gives_same_as(self.config)
        if not same:
            raise FedpuError(
                f"'{self.file}' was made with other settings than {self.name} has now. Delete it to run it again, or "
                "choose another --out."
            )
        return kept

    def keep(self, outcome: Outcome) -> None:
        """Write the outcome of the finished run."""
        kept = {"config": self.config.to_dict(), "result": outcome.summary, "curve": outcome.accuracies}
        write_atomically(self.file, json_text(kept).encode())


def cell_config(cell: Cell, scale: Scale, seed: int) -> Config:
    """Return the configuration of a cell."""
    return Config.from_dict(cell.settings(scale) | {"seed": seed})


@cache
def _paper_names(scale: Scale) -> dict[str, str]:
    return _names(tables(), scale)


def _names(among: Sequence[Table], scale: Scale) -> dict[str, str]:
    """Return the name of each distinct configuration: that of the first cell that has it."""
    names: dict[str, str] = {}
    for table in among:
        for cell in table.cells() if table.offers(scale) else ():
            if cell.column.available:
                names.setdefault(cell_config(cell, scale, 0).to_toml(), cell.preset(scale))
    return names


def run_of(cell: Cell, scale: Scale, seed: int, out: Path) -> PlannedRun:
    """Return the run that fills a cell. Its name is the same whichever tables are asked for."""
    names = _paper_names(scale) if cell.table in tables() else _names([cell.table], scale)
    name = names[cell_config(cell, scale, 0).to_toml()]
    return PlannedRun(f"{name}-seed{seed}", cell_config(cell, scale, seed), out)


def plan(
    chosen: Sequence[Table], scale: Scale, seeds: Sequence[int], out: Path, columns: Collection[str] = ()
) -> list[PlannedRun]:
    """Return the runs that the tables need, each once, seed by seed in the order of the tables.

    ``columns`` names those that are wanted; without it all are.
    """
    known = {cell.column.key for table in chosen for cell in table.cells() if cell.column.available}
    for column in columns:
        if column not in known:
            raise ConfigError(
                f"These tables have no column '{column}'.{did_you_mean(column, known)} "
                f"There are: {', '.join(sorted(known))}."
            )
    runs: dict[str, PlannedRun] = {}
    for seed in seeds:
        for table in chosen:
            for cell in table.cells():
                if cell.column.available and (not columns or cell.column.key in columns):
                    run = run_of(cell, scale, seed, out)
                    runs.setdefault(run.name, run)
    return list(runs.values())
