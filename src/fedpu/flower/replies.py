"""What comes from somebody else's machine is read here: whatever it holds, it is usable or told why it is not.

A reply that can't be used costs its sender the round. Every kind of reply is read with these few functions, each of
which raises :class:`BadReply`, and :func:`suspicion` turns anything else that a reply makes Python raise into one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from flwr.app import RecordDict

MOST_EXAMPLES = 10**9
"""examples of one client; more than that is no number of examples"""
LARGEST = 1e12
"""a term of a loss beyond this is none"""
MOST_TERMS = 32
LONGEST = 300
"""letters of somebody else's text that are shown or recorded"""
NAME = re.compile(r"\w(?:[\w .-]{0,98}[\w.-])?")
"""what a client can be called: it becomes the name of files, a part of lists, and is shown on terminals"""
NAME_RULE = "1 to 100 letters, digits, '.', '_', '-' or spaces, beginning with a letter or a digit"

Kind = TypeVar("Kind")


class BadReply(ValueError):
    """A reply that can't be used, and why."""


@contextmanager
def suspicion() -> Iterator[None]:
    """Read somebody else's bytes inside: whatever goes wrong is their fault, and no reason to stop."""
    try:
        yield
    except BadReply:
        raise
    except Exception as error:
        raise BadReply(f"its answer can't be read ({type(error).__name__}: {shown(error)})") from error


def is_name(text: str) -> bool:
    """Can a client be called that?"""
    return NAME.fullmatch(text) is not None


def shown(text: object) -> str:
    """Return somebody else's text as it can be printed and recorded: in one line, without control characters, cut."""
    plain = "".join(letter if letter.isprintable() else " " for letter in str(text)[: 4 * LONGEST])
    short = " ".join(plain.split())
    return short if len(short) <= LONGEST else f"{short[:LONGEST]}…"


def only(content: RecordDict, allowed: set[str]) -> None:
    """Refuse a reply with records that nobody has asked for."""
    more = sorted(set(content) - allowed)
    if more:
        raise BadReply(f"it sent '{shown(more[0])}', which was not asked for")


def record(content: RecordDict, name: str, keys: set[str]) -> dict[str, Any]:
    """Return a record that has exactly these keys."""
    if name not in content:
        raise BadReply(f"its answer has no '{name}'")
    found: dict[str, Any] = dict(content[name])
    if found.keys() != keys:
        wrong = sorted(found.keys() ^ keys)[0]
        raise BadReply(f"'{name}' of its answer is not what was asked for: '{shown(wrong)}' is in only one of them")
    return found


def whole_number(value: Any, what: str, largest: int, least: int = 1) -> int:
    """Return a whole number between bounds; 3.0, "3", [3] and True are none."""
    if type(value) is not int or not least <= value <= largest:
        raise BadReply(f"{what} is {shown(repr(value))}; it should be a whole number from {least} to {largest}")
    return value


def example_count(value: Any) -> int:
    """Return a client's number of examples."""
    return whole_number(value, "its number of examples", MOST_EXAMPLES)


def text(value: Any, what: str) -> str:
    """Return a text of a moderate length."""
    if not isinstance(value, str) or len(value) > LONGEST:
        raise BadReply(f"{what} is {shown(repr(value))}; it should be a text of at most {LONGEST} letters")
    return value


def listed(value: Any, what: str, most: int) -> list[Any]:
    """Return a list that is not too long."""
    if not isinstance(value, list) or len(value) > most:
        raise BadReply(f"{what} is {shown(repr(value))}; it should be a list of at most {most} entries")
    return value


def terms(content: RecordDict, name: str, asked: bool) -> dict[str, float]:
    """Return the terms of a loss by name: finite numbers, and none where nobody has asked for them."""
    if not asked or name not in content:
        return {}
    found: dict[str, Any] = dict(content[name])
    if len(found) > MOST_TERMS:
        raise BadReply(f"it sent {len(found)} terms of its loss; there can be {MOST_TERMS}")
    for key, value in found.items():
        if not is_name(key):
            raise BadReply(f"a term of its loss is called '{shown(key)}'; a name is {NAME_RULE}")
        if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > LARGEST:
            raise BadReply(f"the term '{key}' of its loss is {shown(repr(value))}, which is no number that can be used")
    return {key: float(value) for key, value in found.items()}


def message_of(kind: type[Kind], value: Any) -> Kind:
    """Return a message whose fields are bytes and lists of bytes or whole numbers, as its class says."""
    wanted: dict[str, str] = {one.name: str(one.type) for one in fields(kind)}  # type: ignore[arg-type]
    given: dict[str, Any] = dict(value)
    if given.keys() != wanted.keys():
        raise BadReply("its answer is not the message that was asked for")
    for name, type_name in wanted.items():
        if not TYPES[type_name](given[name]):
            raise BadReply(f"'{name}' of its answer is not {type_name}")
    return kind(**given)


TYPES = {
    "bytes": lambda value: isinstance(value, bytes),
    "list[bytes]": lambda value: isinstance(value, list) and all(isinstance(one, bytes) for one in value),
    "list[int]": lambda value: isinstance(value, list) and all(type(one) is int for one in value),
}
