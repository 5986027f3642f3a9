"""The checks of annotations that all other tests run under, on a package with mistakes of every kind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

import pytest
import torch
from jaxtyping import TypeCheckError

import fedpu.risk
import shapes

SOURCE = '''"""A module."""
from __future__ import annotations
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from jaxtyping import Float, Int
from torch import Tensor
if TYPE_CHECKING:
    from nowhere import Nothing

def product(a: Float[Tensor, "n d"], b: Float[Tensor, "d m"]) -> Float[Tensor, "n m"]:
    return a @ b

def turned(a: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return a.T

def named(all: dict[str, Float[Tensor, "n"]], one: Float[Tensor, "n"]) -> int:
    return len(all)

def rows(a: Float[Tensor, "n d"], b: Float[Tensor, "d"]) -> Iterator[Tensor]:
    yield from a * b

def plain(text: str) -> int:
    return text if text == "wrong" else len(text)

async def waiting(text: str) -> int:
    return text if text == "wrong" else len(text)

def adding(number: float) -> Callable[[Tensor], Tensor]:
    def add(a: Int[Tensor, "n"]) -> Float[Tensor, "n"]:
        return (a + number) if number else a
    return add

def later(what: Nothing, other: Other) -> None: ...

@dataclass
class Pair:
    a: Float[Tensor, "n"]
    b: Float[Tensor, "n"]
    @property
    def both(self) -> Float[Tensor, "2 n"]:
        return self.a
    @classmethod
    def of(cls, a: Float[Tensor, "n"]) -> Pair:
        return cls(a, a)

class Other: ...
'''
F, I = torch.zeros, lambda *size: torch.zeros(*size, dtype=torch.int64)  # noqa: E741


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("package")
    (folder / "mistakes_of_shape.py").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "meta_path", list(sys.meta_path))
        patch.syspath_prepend(folder)
        shapes.check("mistakes_of_shape")
        return import_module("mistakes_of_shape")


RIGHT: dict[str, Callable[[ModuleType], object]] = {
    "a product": lambda m: m.product(F(2, 3), F(3, 4)),
    "a square": lambda m: m.turned(F(2, 2)),
    "a dictionary": lambda m: m.named({"x": F(2), "y": F(2)}, F(2)),
    "a generator": lambda m: list(m.rows(F(2, 3), F(3))),
    "no shapes": lambda m: m.plain("right"),
    "a coroutine": lambda m: asyncio.run(m.waiting("right")),
    "a function within": lambda m: (m.adding(0.5)(I(3)), m.adding(0.5)(I(4))),
    "a dataclass": lambda m: m.Pair.of(F(3)),
    "a name that is not there": lambda m: m.later(None, 3),
}
WRONG: dict[str, Callable[[ModuleType], object]] = {
    "two arguments": lambda m: m.product(F(2, 3), F(2, 4)),
    "the kind of numbers": lambda m: m.product(I(2, 3), F(3, 4)),
    "the number of axes": lambda m: m.turned(F(2)),
    "the result": lambda m: m.turned(F(2, 3)),
    "a value of a dictionary": lambda m: m.named({"x": F(3)}, F(2)),
    "an argument of a generator": lambda m: m.rows(F(2, 3), F(2)),
    "a type": lambda m: m.plain(3),
    "a type of a result": lambda m: m.plain("wrong"),
    "an argument of a coroutine": lambda m: asyncio.run(m.waiting(3)),
    "the result of a coroutine": lambda m: asyncio.run(m.waiting("wrong")),
    "an argument of a function within": lambda m: m.adding(0.5)(F(3)),
    "the result of a function within": lambda m: (m.adding(0.5)(I(3)), m.adding(0)(I(3))),
    "a dataclass": lambda m: m.Pair(F(2), F(3)),
    "a property": lambda m: m.Pair(F(2), F(2)).both,
    "a method of a class": lambda m: m.Pair.of(I(2)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(mistakes: ModuleType, name: str) -> None:
    RIGHT[name](mistakes)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_does_not(mistakes: ModuleType, name: str) -> None:
    with pytest.raises(TypeCheckError):
        WRONG[name](mistakes)


def test_this_package_is_checked() -> None:
    with pytest.raises(TypeCheckError):
        fedpu.risk.co_negatives(torch.zeros(2, 3, 4, dtype=torch.bool))
