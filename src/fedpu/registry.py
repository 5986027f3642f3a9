"""Settings that are also the thing they set, and registries that find them by name.

A method, partition, aggregation, model or engine is one frozen class: its fields are the keys of its table in the
configuration file, its methods are what it does. A registry lists the classes of one table. Adding one is a new file
and one entry in the registry: the command line, the configuration's checks and the contract tests find it there.

Users add theirs without touching the package: as ``module:Class``, or under a name that an installed package gives it
in an entry point.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import EntryPoint, distributions
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic import BaseModel, ConfigDict

from fedpu.errors import ConfigError, did_you_mean


class Settings(BaseModel):
    """A frozen table of the configuration; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class Choice(Settings):
    """Settings that are one of several kinds of a table, which the key ``chosen_by`` chooses.

    A class that gives that key no value of its own is known as ``module:Class``, also where it inherits from one that
    has a name: a user's class needs no name, and is never recorded under another's.
    """

    chosen_by: ClassVar[str] = "name"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.chosen_by not in inspect.get_annotations(cls):  # its own, not those of its bases
            cls.__annotations__[cls.chosen_by] = str
            setattr(cls, cls.chosen_by, reference_to(cls))


Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """The entries of one kind by name: the built-in ones in the order in which they were listed, then installed ones.

    ``group`` names the entry points of packages that add to it; a registry with a group also takes ``module:name``.
    What is found in these ways must be a class that inherits from ``base``, or anything callable where there is no
    base. ``function`` is the entry that stands for a plain function, where one will do instead of a class.
    """

    def __init__(
        self,
        kind: str,
        entries: dict[str, Entry],
        *,
        group: str | None = None,
        base: type[Any] | None = None,
        function: Entry | None = None,
    ) -> None:
        self.kind = kind
        self.group = group
        self.base = base
        self.function = function
        self._entries = dict(entries)

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names; nothing is imported for it."""
        yield from self._entries
        yield from (name for name in self._installed() if name not in self._entries)

    def __contains__(self, name: object) -> bool:
        """Can it be asked for? What ``module:name`` names is looked for only when it is."""
        return name in self._entries or (
            self.group is not None and isinstance(name, str) and (is_reference(name) or name in self._installed())
        )

    def items(self) -> Iterator[tuple[str, Entry]]:
        """Iterate over the built-in names and their entries."""
        return iter(self._entries.items())

    def __getitem__(self, name: str) -> Entry:
        if name in self._entries:
            return self._entries[name]
        if self.group is not None and is_reference(name):
            return self._checked(name, import_object(name))
        if name in self._installed():
            return self._loaded(self._installed()[name])
        own = f"; or your own as {self.own}" if self.own else ""
        raise ConfigError(
            f"There is no {self.kind} called '{name}'.{did_you_mean(name, self)} Known: {', '.join(self)}{own}."
        )

    @property
    def own(self) -> str:
        """How users name theirs, or nothing where they can't have any."""
        if self.group is None:
            return ""
        if self.base is None:
            return "module:function"
        return "module:Class" if self.function is None else "module:Class or module:function"

    def name_of(self, entry: Entry, name: str) -> str:
        """Return by what an entry is found again: ``name`` if that leads to it, else ``module:Class``."""
        if entry is self.function or self._entries.get(name) is entry:
            return name
        found: Entry | None = None
        with suppress(ConfigError):
            found = self[name]
        return name if found is entry else reference_to(entry)

    def _installed(self) -> dict[str, EntryPoint]:
        return {} if self.group is None else entry_points(tuple(sys.path)).get(self.group, {})

    def _loaded(self, point: EntryPoint) -> Entry:
        try:
            found = point.load()
        except Exception as error:  # whatever the package raises, or its absence
            raise ConfigError(
                f"The {self.kind} '{point.name}', which an installed package provides as '{point.value}', can't be "
                f"loaded ({_told(error)}). Mend or remove that package."
            ) from error
        return self._checked(point.value, found, functions=False)

    def _checked(self, reference: str, found: Any, functions: bool = True) -> Entry:
        if self.base is None:
            if not callable(found):
                raise ConfigError(f"'{reference}' must be a function; it is {_what(found)}, which is not callable.")
            return cast(Entry, found)
        use = f"'{reference}' can't be used as {'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"
        if isinstance(found, type) and issubclass(found, self.base):
            missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
            if missing:
                raise ConfigError(f"{use}: it does not define {missing}.")
            return cast(Entry, found)
        functions = functions and self.function is not None
        other_settings = isinstance(found, type) and issubclass(found, Settings)
        if functions and callable(found) and not other_settings:
            return cast(Entry, self.function)
        wanted = f"a class that inherits from {self.base.__module__.removesuffix('.base')}.{self.base.__name__}"
        also = ", or a function" if functions else ""
        raise ConfigError(f"{use}: it must be {wanted}{also}; it is {_what(found)}.")


@lru_cache(maxsize=1)
def entry_points(path: tuple[str, ...]) -> dict[str, dict[str, EntryPoint]]:
    """Return what installed packages add to the registries, by group and name; of two alike the first on the path.

    ``path`` is Python's, on which the answer depends. A package whose metadata can't be read adds nothing.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    for distribution in distributions(path=list(path)):
        with suppress(Exception):  # one broken package is no reason to refuse the others
            for point in distribution.entry_points:
                if point.group.startswith("fedpu."):
                    found.setdefault(point.group, {}).setdefault(point.name, point)
    return found


def is_reference(text: str) -> bool:
    """Has it the form ``package.module:name``? Paths such as ``C:\\data`` and addresses have not."""
    module, _, name = text.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), name])


def reference_to(found: Any) -> str:
    """Return ``module:name`` of a class or function."""
    return f"{found.__module__}:{found.__qualname__}"


def why_lost(found: Any) -> str | None:
    """Say why a class can't be imported again by its module and name, or return None where it can."""
    if found.__module__ == "__main__":
        return "it is defined in the program that was started, which no other program can import"
    if not is_reference(reference_to(found)):
        return "it is defined inside a function or another class"
    try:
        same = import_object(reference_to(found)) is found
    except ConfigError as error:
        return str(error).rstrip(".")
    return None if same else f"'{reference_to(found)}' is something else"


def import_object(reference: str) -> Any:
    """Return what ``"package.module:name"`` names, with an error a user can act on when it can't be had."""
    if not is_reference(reference):
        raise ConfigError(f"'{reference}' names nothing that can be imported: write module:name.")
    module_name, _, attribute = reference.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a command, unlike a script, has not its user's folder on the path
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises, or its absence
        absent = isinstance(error, ModuleNotFoundError)
        remedy = " It must be on Python's path: run from its folder, or set PYTHONPATH." if absent else ""
        raise ConfigError(f"The module of '{reference}' can't be imported ({_told(error)}).{remedy}") from error
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise ConfigError(
            f"The module '{module_name}' has no '{attribute}'.{did_you_mean(attribute, dir(module))}"
        ) from error


def _told(error: Exception) -> str:
    """Return an error's kind and the first line of its text."""
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first}"


def _what(found: Any) -> str:
    if isinstance(found, type):
        return f"the class {found.__name__}"
    return "a function" if inspect.isfunction(found) else f"{found!r} of type {type(found).__name__}"
