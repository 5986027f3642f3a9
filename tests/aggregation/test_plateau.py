"""A learning rate that is divided after a while without gain."""

import pytest

from fedpu.aggregation import plateau_scale


@pytest.mark.parametrize(
    ("losses", "scale"),
    [
        ([], 1),
        ([3, 2, 1], 1),
        ([1, 2], 1),
        ([1, 2, 2], 1 / 3),
        ([1, 1, 1], 1 / 3),
        ([1, 2, 0.5, 2], 1),
        ([1, 2, 2, 2], 1 / 3),
        ([1, 2, 2, 2, 2], 1 / 9),
        ([1, 2, 2, 0.5, 1, 1], 1 / 9),
    ],
)
def test_it_is_divided_after_two_losses_in_a_row_that_are_not_below_the_best(losses: list[float], scale: float) -> None:
    assert plateau_scale(map(float, losses), 2, 3.0) == pytest.approx(scale)
