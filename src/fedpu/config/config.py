"""The configuration: one frozen value, from a TOML file or a preset, with single keys set on top."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import Field

from fedpu.aggregation import AGGREGATIONS, Aggregation
from fedpu.augmentation import Augmentation
from fedpu.config.removed import refuse_removed
from fedpu.config.sections import SECTIONS, EvaluationSettings
from fedpu.data import DataSettings
from fedpu.engine import Engine, LocalEngine
from fedpu.errors import ConfigError, did_you_mean
from fedpu.faults import Faults
from fedpu.labelling import Labelling
from fedpu.method import METHODS, Method
from fedpu.models import Model, PaperCNN
from fedpu.paper import cell_presets
from fedpu.partition import Iid, Partitioner
from fedpu.presets import preset_names, preset_text
from fedpu.priors import Priors
from fedpu.privacy import Privacy
from fedpu.registry import Settings
from fedpu.tracking import Record

MAX_SEED = 2**32 - 1


class Config(Settings):
    """Everything a run depends on. The defaults are the paper's settings on MNIST."""

    seed: int = Field(0, ge=0, le=MAX_SEED)
    data: DataSettings = DataSettings()
    partition: Partitioner = Iid()
    labelling: Labelling = Labelling()
    priors: Priors = Priors()
    augmentation: Augmentation = Augmentation()
    model: Model = PaperCNN()
    method: Method = Field(default_factory=lambda: METHODS[next(iter(METHODS))]())
    aggregation: Aggregation = Field(default_factory=lambda: AGGREGATIONS[next(iter(AGGREGATIONS))]())
    engine: Engine = LocalEngine()
    privacy: Privacy = Privacy()
    faults: Faults = Faults()
    evaluation: EvaluationSettings = EvaluationSettings()
    record: Record = Record()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Make a configuration of nested tables, checking every key and value."""
        return cls._read(values, None)

    @classmethod
    def _read(cls, values: Mapping[str, Any], before: Config | None) -> Config:
        known = ["seed", *SECTIONS]
        parts: dict[str, Any] = {}
        refuse_removed(values)
        for key, value in values.items():
            if key == "seed":
                if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SEED:
                    raise ConfigError(
                        f"seed = {value!r} can't be used: it should be a whole number from 0 to {MAX_SEED}."
                    )
                parts[key] = value
            elif key in SECTIONS:
                parts[key] = SECTIONS[key].parse(value, None if before is None else getattr(before, key))
            else:
                raise ConfigError(
                    f"There is no setting '{key}'.{did_you_mean(key, known)} The file has: {', '.join(known)}."
                )
        return cls(**parts)

    @classmethod
    def load(
        cls, source: str | Path | None = None, *, preset: str | None = None, overrides: Iterable[str] = ()
    ) -> Config:
        """Read a TOML file or a preset (or neither: the defaults), then set ``overrides`` such as
        ``"method.name=fedpu"``.
        """
        if source is not None and preset is not None:
            raise ConfigError("Give either a configuration file or a preset, not both.")
        if preset is not None:
            values = read_preset(preset)
        elif source is not None:
            values = read_file(Path(source))
        else:
            values = {}
        set_keys(values, overrides, None)
        return cls.from_dict(values)

    def with_(self, *overrides: str) -> Config:
        """Return the configuration with keys set anew, such as ``"aggregation.rounds=20"``."""
        values = self.to_dict()
        set_keys(values, overrides, self)
        return Config._read(values, self)

    def gives_same_as(self, other: Config) -> bool:
        """Do both describe the same result? The engine and what else is recorded do not change it, and neither does how
        priors would be estimated where they are not, or how far transforms would go that no view has.
        """
        mine = self.model_copy(update={"engine": other.engine, "record": other.record} | self._without_unused())
        return mine == other.model_copy(update=other._without_unused())

    def _without_unused(self) -> dict[str, Settings]:
        return {"priors": self.priors.without_unused(), "augmentation": self.augmentation.without_unused()}

    def to_dict(self) -> dict[str, Any]:
        """Return the resolved configuration as nested tables of plain values."""
        return {"seed": self.seed} | {name: section.dump(getattr(self, name)) for name, section in SECTIONS.items()}

    def to_toml(self) -> str:
        """Return the resolved configuration as a TOML file, with a warning where it can't be read back elsewhere."""
        for name, section in SECTIONS.items():
            section.warn_if_lost(getattr(self, name))
        return tomli_w.dumps(self.to_dict())


def set_keys(values: dict[str, Any], overrides: Iterable[str], before: Config | None) -> None:
    """Set several keys in nested tables, those of ``before`` or of a file.

    One that chooses another variant of a table, such as ``"aggregation.name=…"``, takes what was only the former
    variant's away: nobody has written it for the new one.
    """
    written: set[tuple[str, str]] = set()
    for override in overrides:
        table, _, key = override.partition("=")[0].strip().partition(".")
        former = values.get(table)
        former = dict(former) if isinstance(former, Mapping) else None
        set_key(values, override)
        section = SECTIONS.get(table)
        if section is not None and key == section.key and former is not None:
            keep = {name for of, name in written if of == table}
            like = None if before is None else getattr(before, table)
            values[table] = section.without_leftovers(former, values[table], keep, like)
        written.add((table, key))


_BARE_POINT = re.compile(r"(?<![\w.])\.(?=\d)")
"""as in .5, which people write and TOML does not know"""


def set_key(values: dict[str, Any], override: str) -> None:
    """Set ``"table.key=value"`` in nested tables; the value is read as TOML, or else as a string."""
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"'{override}' can't be set: write table.key=value, for example aggregation.rounds=50.")
    *tables, key = path.strip().split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise ConfigError(f"'{path}' can't be set: '{table}' is a value, not a table.")
    values[key] = _value(text.strip())


def _value(text: str) -> Any:
    for toml in (text, _BARE_POINT.sub("0.", text)):
        try:
            return tomllib.loads(f"value = {toml}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return text


def toml_string(text: str) -> str:
    """Return a string as TOML writes it, so that no path is taken for a number or a table."""
    return tomli_w.dumps({"value": text}).partition("=")[2].strip()


def read_file(path: Path) -> dict[str, Any]:
    """Read a configuration file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        near = f" There is a preset of that name: use --preset {path}." if str(path) in preset_names() else ""
        raise ConfigError(
            f"There is no configuration file '{path}'.{near} 'fedpu config > {path}' writes one with the defaults."
        ) from error
    except IsADirectoryError as error:
        raise ConfigError(f"'{path}' is a folder; a configuration is a TOML file.") from error
    except OSError as error:
        raise ConfigError(f"The configuration file '{path}' can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not a valid TOML file: {error}.") from error


def read_preset(name: str) -> dict[str, Any]:
    """Read a preset, or the settings of a cell of the paper's tables such as ``table1-row4-fedpu``."""
    cells = cell_presets()
    if name in cells:
        cell, scale = cells[name]
        return cell.settings(scale)
    names = preset_names()
    if name not in names:
        raise ConfigError(
            f"There is no preset '{name}'.{did_you_mean(name, [*names, *cells])} Presets: {', '.join(names)}, and "
            "every cell of the paper's tables, such as table1-row4-fedpu ('fedpu reproduce --list' shows them)."
        )
    return tomllib.loads(preset_text(name))
