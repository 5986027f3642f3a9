"""What is used of Flower besides its public API is all there, in the version that is installed."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from fedpu.flower import private


@pytest.mark.parametrize("name", list(private.MODULES))
def test_every_name_is_where_it_is_looked_for(name: str) -> None:
    assert getattr(private, name) is not None


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = private.nothing
