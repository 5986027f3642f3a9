"""The configuration: one frozen value, from a TOML file or a preset, with single keys set on top."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import Field

from fedpu.aggregation import Aggregation, FedAvg
from fedpu.config.sections import SECTIONS, EvaluationSettings
from fedpu.data import DataSettings
from fedpu.engine import Engine, LocalEngine
from fedpu.errors import ConfigError, did_you_mean
from fedpu.labelling import Labelling
from fedpu.method import FedPU, Method
from fedpu.models import Model, PaperCNN
from fedpu.partition import Iid, Partitioner
from fedpu.priors import Priors
from fedpu.privacy import Privacy
from fedpu.registry import Settings

MAX_SEED = 2**32 - 1


class Config(Settings):
    """Everything a run depends on. The defaults are the paper's settings on MNIST."""

    seed: int = Field(0, ge=0, le=MAX_SEED)
    data: DataSettings = DataSettings()
    partition: Partitioner = Iid()
    labelling: Labelling = Labelling()
    priors: Priors = Priors()
    model: Model = PaperCNN()
    method: Method = FedPU()
    aggregation: Aggregation = FedAvg()
    engine: Engine = LocalEngine()
    privacy: Privacy = Privacy()
    evaluation: EvaluationSettings = EvaluationSettings()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Make a configuration of nested tables, checking every key and value."""
        known = ["seed", *SECTIONS]
        parts: dict[str, Any] = {}
        for key, value in values.items():
            if key == "seed":
                if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SEED:
                    raise ConfigError(
                        f"seed = {value!r} can't be used: it should be a whole number from 0 to {MAX_SEED}."
                    )
                parts[key] = value
            elif key in SECTIONS:
                parts[key] = SECTIONS[key].parse(value)
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
        for override in overrides:
            set_key(values, override)
        return cls.from_dict(values)

    def with_(self, *overrides: str) -> Config:
        """Return the configuration with keys set anew, such as ``"aggregation.rounds=20"``."""
        values = self.to_dict()
        for override in overrides:
            set_key(values, override)
        return Config.from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """Return the resolved configuration as nested tables of plain values."""
        tables = {name: getattr(self, name).model_dump(mode="json", exclude_none=True) for name in SECTIONS}
        return {"seed": self.seed, **tables}

    def to_toml(self) -> str:
        """Return the resolved configuration as a TOML file."""
        return tomli_w.dumps(self.to_dict())


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
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


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


def preset_names() -> list[str]:
    """Return the names of the presets that come with the package."""
    files = resources.files("fedpu").joinpath("presets").iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Read a preset."""
    names = preset_names()
    if name not in names:
        raise ConfigError(f"There is no preset '{name}'.{did_you_mean(name, names)} Presets: {', '.join(names)}.")
    return tomllib.loads(resources.files("fedpu").joinpath(f"presets/{name}.toml").read_text("utf-8"))
