"""How the learning rate changes from round to round."""

import json
from pathlib import Path

import pytest

from fedpu.aggregation import plateau_scale
from fedpu.applications.experiment import run
from fedpu.config import Config


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


@pytest.mark.parametrize("name", ["fedavg", "fedsgd"])
@pytest.mark.parametrize(
    ("schedule", "rates"), [("decay", [0.4, 0.2, 0.1, 0.05]), ("linear", [0.4, 0.15, 0.05, 0.0125])]
)
def test_a_run_has_the_rates_of_its_schedule(
    tiny_config: Config, tmp_path: Path, name: str, schedule: str, rates: list[float]
) -> None:
    """By hand: .4 halved every round, and times 1, 3/4, 1/2, 1/4 besides where it falls in a line."""
    config = tiny_config.with_(
        f"aggregation.name={name}",
        "aggregation.rounds=4",
        "aggregation.lr=0.4",
        "aggregation.lr_decay=0.5",
        f"aggregation.lr_schedule={schedule}",
    )
    run(config, out=tmp_path)
    told = [json.loads(line)["lr"] for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert told == pytest.approx(rates)
