"""What a check says: which promise is broken, how that was found, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import ValidationError

from fedpu.registry import Choice

Thing = TypeVar("Thing", bound=Choice)


class ContractError(AssertionError):
    """A class does not keep a promise that engines rely on."""


class Checked:
    """Whatever is being checked, by the name that sentences use."""

    def __init__(self, thing: Any) -> None:
        self.name = getattr(thing, "__qualname__", type(thing).__qualname__)

    def promise(self, promise: str, kept: bool, found: str, remedy: str) -> None:
        """Raise an error of three sentences, unless the promise is kept."""
        if not kept:
            raise ContractError(f"{self.name}: {promise}. {found}. {remedy}.")

    @contextmanager
    def able_to(self, do: str) -> Iterator[None]:
        """Say what was being tried when the class raised an error of its own."""
        try:
            yield
        except ContractError:
            raise
        except Exception as error:
            first, *_ = str(error).strip().splitlines() or [""]
            told = f"{type(error).__name__}: {first}".rstrip(".: ")
            raise ContractError(f"{self.name}: it must be able to {do}. It raised {told}.") from error


def made(base: Any, thing: Thing | type[Thing]) -> Thing:
    """Return an object of a class, made with its defaults; an object is returned as it is."""
    name = base.__name__
    if not isinstance(thing, type) and isinstance(thing, base):
        _read_back(thing)
        return thing
    if not isinstance(thing, type) or not issubclass(thing, base):
        raise TypeError(f"A class that inherits from {name}, or an object of one, can be checked; got {thing!r}.")
    missing = ", ".join(sorted(getattr(thing, "__abstractmethods__", ())))
    if missing:
        raise ContractError(f"{thing.__qualname__}: a class that inherits from {name} must define {missing}.")
    try:
        object_ = thing()
    except ValidationError as error:
        keys = ", ".join(str(part["loc"][0]) for part in error.errors() if part["loc"]) or "its settings"
        raise ContractError(
            f"{thing.__qualname__} can't be made with its defaults: {keys} must be given. Pass an object of it instead "
            "of the class."
        ) from error
    _read_back(object_)
    return object_


def _read_back(thing: Choice) -> None:
    checked = Checked(thing)
    with checked.able_to("be written to a configuration file and read back"):
        again = type(thing).model_validate_json(thing.model_dump_json())
    checked.promise(
        "its settings are what a configuration file can hold",
        again == thing,
        f"Written and read back, {thing!r} became {again!r}",
        "Give its fields types such as int, float, str, bool or lists of them",
    )
