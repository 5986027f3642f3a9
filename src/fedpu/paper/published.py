"""The tables of the paper: settings and published numbers from ``tables/*.toml``, one file per table.

A file has the settings that all rows share, and rows with settings of their own and the published accuracies by column;
``also`` names columns that the paper does not have in that row. A column of its own changes of a common one of the same
key (``columns.toml``) what it says, and leaves the rest.
``scales`` are changes for smaller machines. A cell, that is a row and a column, is a configuration with a name:
``table1-row4-fedpu``, or ``table1-row4-fedpu-quick`` at another scale than the paper's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

from fedpu.errors import ConfigError, did_you_mean

Scale = Literal["quick", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
"""``paper``: the paper's rounds on the whole data; ``cpu``: what two cores can carry, where that is less; ``quick``: a
reduced look at everything in minutes.
"""

Settings = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A method of a table, with what it changes of the row's settings."""

    key: str
    heading: str
    settings: Settings = field(default_factory=dict)
    available: bool = True
    """False: a method that fedpu does not have, so that only the published number can be shown"""
    ours: bool = False
    """is it the paper's own method, which pages set in bold?"""
    fully_labelled: bool = False
    """is every example labelled, so that the rows' labelling makes no difference?"""
    beside: str | None = None
    """the paper does not have it: it is run and shown in every row that has this column"""
    scales: Mapping[str, Settings] = field(default_factory=dict)
    """changes of its own for smaller machines"""
    between: Sequence[str] = ()
    """the two columns, of labelled data alone and of all labels, whose networks see what this one's sees: its share of
    the supervision gap lies between them. None: between those that see the examples as they are.
    """

    def stands_in(self, row: Row) -> bool:
        """Has the row a cell of this column?"""
        return self.key in row or self.beside in row


@dataclass(frozen=True)
class Row:
    """A row of a table: its settings, and the published accuracies in per cent by column."""

    number: int
    name: str
    settings: Settings
    published: Mapping[str, float]
    also: Sequence[str] = ()
    """columns that are run and shown without a published number"""

    def __contains__(self, key: object) -> bool:
        return key in self.published or key in self.also


@dataclass(frozen=True)
class Cell:
    """A row and a column: one configuration, and one published number unless the paper does not have the column."""

    table: Table
    row: Row
    column: Column

    @property
    def published(self) -> float | None:
        """The paper's accuracy, in per cent; None where it printed none."""
        return self.row.published.get(self.column.key)

    def preset(self, scale: Scale) -> str:
        """Return the name under which ``fedpu run --preset`` knows it; the paper's where the scale changes nothing."""
        name = f"table{self.table.number}-row{self.row.number}-{self.column.key}"
        return f"{name}-{scale}" if self.table.reduced(scale) else name

    def settings(self, scale: Scale) -> Settings:
        """Return the configuration as nested tables."""
        values = merged(self.table.settings, self.row.settings)
        values = merged(values, self.table.scales.get(scale, {}))
        values = merged(values, self.column.settings)
        values = merged(values, self.column.scales.get(scale, {}))
        rates = self.table.learning_rates.get(scale if self.table.reduced(scale) else "paper", {})
        if self.column.key in rates:
            values = merged(values, {"aggregation": {"lr": rates[self.column.key]}})
        if self.column.fully_labelled:  # rows that differ in labelling alone are one run
            values.pop("labelling", None)
            if self.table.one_gradient:
                values.pop("partition", None)
        return values


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    number: int
    label: str
    title: str
    notes: tuple[str, ...]
    settings: Settings
    scales: Mapping[str, Settings]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    learning_rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """of columns that have one of their own, by scale"""
    on_request: tuple[Scale, ...] = ()
    """scales at which it is only run when it is asked for by its name"""
    one_gradient: bool = False
    """is a round one step along the mean gradient of all data? Where every label is known, the split then makes no
    difference
    """

    def cells(self) -> Iterator[Cell]:
        """Iterate over the cells, row by row."""
        for row in self.rows:
            for column in self.columns:
                if column.stands_in(row):
                    yield Cell(self, row, column)

    def offers(self, scale: Scale) -> bool:
        """Can it be run at the scale? Some tables need no reduction for two cores; quick always is one."""
        return scale != "quick" or self.reduced(scale)

    def reduced(self, scale: Scale) -> bool:
        """Does the scale ask for less than the paper's settings?"""
        return scale in self.scales


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Return nested tables with the changes set on top. A table of another name, as of another network, starts anew."""
    result = deepcopy(dict(base))
    for key, value in changes.items():
        before = result.get(key)
        if (
            isinstance(value, Mapping)
            and isinstance(before, Mapping)
            and value.get("name") in (None, before.get("name"))
        ):
            result[key] = merged(before, value)
        else:
            result[key] = deepcopy(value)
    return result


def _read(text: str) -> Table:
    values = tomllib.loads(text)
    known = common_columns() | {
        column["key"]: _on_top(common_columns().get(column["key"]), column) for column in values.get("columns", [])
    }
    rows = tuple(Row(number, **row) for number, row in enumerate(values["rows"], start=1))
    return Table(
        number=values["number"],
        label=values["label"],
        title=values["title"],
        notes=tuple(values.get("notes", ())),
        settings=values["settings"],
        scales=values.get("scales", {}),
        columns=tuple(column for column in known.values() if any(map(column.stands_in, rows))),
        rows=rows,
        learning_rates=values.get("learning_rates", {}),
        on_request=tuple(values.get("on_request", ())),
        one_gradient=values.get("one_gradient", False),
    )


def _on_top(common: Column | None, own: Mapping[str, Any]) -> Column:
    """Return a table's own column. What it leaves out is as in the common one of the same key, if there is one."""
    return replace(common, **own) if common else Column(**own)


@cache
def common_columns() -> dict[str, Column]:
    """Return the columns that any table may have."""
    text = resources.files("fedpu.paper").joinpath("columns.toml").read_text("utf-8")
    return {column["key"]: Column(**column) for column in tomllib.loads(text)["columns"]}


@cache
def tables() -> tuple[Table, ...]:
    """Return all tables in the paper's order."""
    files = resources.files("fedpu.paper").joinpath("tables").iterdir()
    return tuple(sorted((_read(file.read_text("utf-8")) for file in files), key=lambda table: table.number))


def find_table(name: str) -> Table:
    """Return the table of a label (``table:iid`` or ``iid``) or a number (``1`` or ``table1``)."""
    spellings = {
        spelling: table
        for table in tables()
        for spelling in (
            table.label,
            table.label.partition(":")[2],
            str(table.number),
            f"table{table.number}",
        )
    }
    if name not in spellings:
        labels = [table.label for table in tables()]
        raise ConfigError(
            f"The paper has no table '{name}'.{did_you_mean(name, spellings)} It has {', '.join(labels)}."
        )
    return spellings[name]


@cache
def cell_presets() -> dict[str, tuple[Cell, Scale]]:
    """Return all cells that can be run, by the name of their preset."""
    return {
        cell.preset(scale): (cell, scale)
        for table in tables()
        for scale in SCALES
        if table.offers(scale)
        for cell in table.cells()
        if cell.column.available
    }
