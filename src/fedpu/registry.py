"""Settings that are also the thing they set, and registries that find them by name.

A method, partition, aggregation, model or engine is one frozen class: its fields are the keys of its table in the
configuration file, its methods are what it does. A registry lists the classes of one table. Adding one is a new file
and one entry in the registry: the command line, the configuration's checks and the contract tests find it there.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from fedpu.errors import ConfigError, did_you_mean


class Settings(BaseModel):
    """A frozen table of the configuration; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """The entries of one kind by name, in the order in which they were listed."""

    def __init__(self, kind: str, entries: dict[str, Entry]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def items(self) -> Iterator[tuple[str, Entry]]:
        """Iterate over the names and their entries."""
        return iter(self._entries.items())

    def __getitem__(self, name: str) -> Entry:
        if name in self._entries:
            return self._entries[name]
        raise ConfigError(
            f"There is no {self.kind} called '{name}'.{did_you_mean(name, self._entries)} "
            f"Known: {', '.join(self._entries)}."
        )


def import_object(reference: str) -> Callable[..., Any]:
    """Return what ``"package.module:name"`` names, with an error a user can act on when it can't be had."""
    module_name, _, attribute = reference.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # a command, unlike a script, has not its user's folder on the path
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever the user's module raises, or its absence
        raise ConfigError(
            f"The module of '{reference}' can't be imported ({type(error).__name__}: {error}). Give 'module:function' "
            "with the module on Python's path, for example by running from its folder or setting PYTHONPATH."
        ) from error
    try:
        found: Callable[..., Any] = getattr(module, attribute)
    except AttributeError as error:
        raise ConfigError(
            f"The module '{module_name}' has no '{attribute}'.{did_you_mean(attribute, dir(module))}"
        ) from error
    if not callable(found):
        raise ConfigError(f"'{reference}' must be a function that returns a torch.nn.Module; it is not callable.")
    return found
