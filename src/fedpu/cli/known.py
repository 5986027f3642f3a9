"""What the command can say at once, without the seconds that importing PyTorch takes: names, defaults and data sets.

``known.json`` and ``default.toml`` are made from the registries and settings themselves with ``python -m
fedpu.cli.known``, and a test holds that they are up to date.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple

DEFAULTS, NAMES = "default.toml", "known.json"


class KnownData(NamedTuple):
    """A data set that is known by name."""

    name: str
    description: str
    size: str
    files: list[str]

    def missing(self, directory: Path) -> list[str]:
        """Return the names of its files that are not in the data directory, packed or not."""
        folder = directory / self.name
        places = {name: (folder / name, folder / f"{name}.gz") for name in self.files}
        return [name for name, paths in places.items() if not any(path.is_file() for path in paths)]


@cache
def names(kind: str) -> list[str]:
    """Return the built-in names of a kind, such as "methods"."""
    found: list[str] = _known()[kind]
    return found


def number(kind: str) -> float:
    """Return a number that help texts name."""
    return float(_known()[kind])


def data_sets() -> list[KnownData]:
    """Return the data sets that are known by name."""
    return [KnownData(**values) for values in _known()["data_sets"]]


def default_configuration() -> str:
    """Return the default configuration file. What installed packages add to it is looked up only where there is any."""
    if plugins():
        from fedpu.config import default_file

        return default_file()
    return _read(DEFAULTS)


def plugins() -> dict[str, list[str]]:
    """Return what installed packages add to fedpu's registries: names by group. A broken package adds nothing."""
    found: dict[str, list[str]] = {}
    for distribution in metadata.distributions():
        with suppress(Exception):  # one broken package is no reason to refuse the others
            for point in distribution.entry_points:
                if point.group.startswith("fedpu."):
                    found.setdefault(point.group, []).append(point.name)
    return found


def data_directory(directory: Path | None) -> Path:
    """Return where full data sets are kept, by the rule of :func:`fedpu.data.data_directory`."""
    given = directory or os.environ.get("FEDPU_DATA")
    if given:
        return Path(given).expanduser()
    if Path("data").is_dir():
        return Path("data")
    from pooch import os_cache

    return Path(os_cache("fedpu"))


def preset_listing() -> list[dict[str, str]]:
    """Return every preset with what it is: those of the package, then the cells of the paper's tables."""
    from fedpu.paper import cell_presets
    from fedpu.presets import preset_names, preset_text

    own = [{"name": name, "what": preset_text(name).partition("\n")[0].lstrip("# ")} for name in preset_names()]
    cells = [
        {
            "name": name,
            "what": f"table {cell.table.number}, {cell.row.name}: {cell.column.heading}"
            + (f" (scale {scale})" if cell.table.reduced(scale) else ""),
        }
        for name, (cell, scale) in cell_presets().items()
    ]
    return own + cells


@cache
def _known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_read(NAMES))
    return found


def _read(name: str) -> str:
    return resources.files("fedpu.cli").joinpath(name).read_text("utf-8")


def made_anew() -> dict[str, str]:
    """Return what both files should hold, from the registries and settings."""
    from fedpu.applications.export import EXPORTERS
    from fedpu.applications.tuning import HELD_OUT
    from fedpu.config import default_file
    from fedpu.data import SOURCES
    from fedpu.engine import ENGINES
    from fedpu.method import METHODS, USUAL
    from fedpu.priors import ESTIMATORS

    sources = [
        KnownData(s.name, s.description, s.size, [file.name for file in s.files.files] if s.files else [])._asdict()
        for _, s in SOURCES.items()
    ]
    known = {
        "methods": [name for name, _ in METHODS.items()],
        "usual_methods": list(USUAL),
        "engines": [name for name, _ in ENGINES.items()],
        "exporters": list(EXPORTERS),
        "estimators": [name for name, _ in ESTIMATORS.items()],
        "held_out": HELD_OUT,
        "data_sets": sources,
    }
    return {NAMES: json.dumps(known, indent=1, ensure_ascii=False) + "\n", DEFAULTS: default_file()}


if __name__ == "__main__":
    for file, text in made_anew().items():
        Path(__file__).with_name(file).write_text(text, "utf-8")
