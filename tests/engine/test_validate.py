"""An update from somebody else's machine is looked at before it is averaged."""

from __future__ import annotations

import math

import pytest
import torch

from fedpu.engine.validate import Expected, distance, fault
from fedpu.round import Broadcast, Update

MODEL = {"weight": torch.ones(2, 3), "bias": torch.zeros(3), "batches": torch.tensor(4)}


def judged(model: dict[str, torch.Tensor], max_norm: float) -> str | None:
    return fault(Update(0, 1, model, {}), Broadcast(MODEL), Expected({}, {}), max_norm)


def changed(**entries: torch.Tensor) -> dict[str, torch.Tensor]:
    return MODEL | entries


def test_an_update_like_the_model_is_fine() -> None:
    assert judged(changed(bias=torch.full((3,), 0.5)), max_norm=1.0) is None
    assert distance(changed(bias=torch.full((3,), 0.5)), MODEL) == pytest.approx(math.sqrt(0.75))


@pytest.mark.parametrize(
    ("update", "told"),
    [
        ({"weight": torch.ones(2, 3)}, "'batches' is in only one"),
        (changed(more=torch.ones(1)), "'more' is in only one"),
        (changed(weight=torch.ones(3, 2)), "'weight' has shape (3, 2)"),
        (changed(bias=torch.zeros(3, dtype=torch.float64)), "torch.float64"),
        (changed(bias=torch.tensor([0.0, math.nan, 0.0])), "'bias' holds values that are NaN"),
        (changed(weight=torch.full((2, 3), math.inf)), "NaN or infinite"),
        (changed(bias=torch.tensor([1e30, 0.0, 0.0])), "norm 1e+30, more than engine.max_norm = 10"),
    ],
    ids=["missing", "additional", "shape", "type", "NaN", "infinite", "huge"],
)
def test_an_update_that_is_not_is_told_why(update: dict[str, torch.Tensor], told: str) -> None:
    assert told in str(judged(update, max_norm=10.0))


def test_what_comes_besides_the_model_must_be_what_was_asked_for() -> None:
    expected = Expected({"control": torch.zeros(2)}, {})
    right = Update(0, 1, MODEL, {}, extras={"control": torch.ones(2)})
    assert fault(right, Broadcast(MODEL), expected) is None
    assert "'control'" in str(fault(Update(0, 1, MODEL, {}), Broadcast(MODEL), expected))
    unasked = Update(0, 1, MODEL, {}, extras={"control": torch.ones(2)}, shared={"mine": torch.ones(1)})
    assert "'mine'" in str(fault(unasked, Broadcast(MODEL), expected))
