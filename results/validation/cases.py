"""The searches of the comparison: what is fixed, and what is chosen from. Each takes half a minute of one core."""

from __future__ import annotations

from dataclasses import dataclass, field

RATES = "aggregation.lr=0.003,0.01,0.03,0.1,0.3"
METHODS = "method.name=fedpu,positive-only,labelled-only,conventional-pu,aligned"
GUESS = ["priors.source=given", "priors.values=0.1"]
SHORT = ["aggregation.rounds=15", "evaluation.every=1", "aggregation.lr=0.03", "engine.workers=1"]
LONG = ["aggregation.rounds=50", "evaluation.every=50", "aggregation.batch_size=40"]
MOMENTA = "aggregation.momentum=0.5,0.9"
MNIST = ["data.name=mnist", "model.name=mlp", "model.hidden=[64]", "aggregation.batch_size=20"]
DIGITS = ["data.name=digits", "model.name=mlp", "model.hidden=[32]", "aggregation.batch_size=10"]
PARTITIONS = {
    "10×1": ["partition.clients=10", "labelling.positive=1"],
    "5×2": ["partition.clients=5", "labelling.positive=2"],
    "2×5": ["partition.clients=2", "labelling.positive=5"],
    "classes": [
        "partition.kind=classes",
        "partition.clients=10",
        "partition.classes_per_client=5",
        "labelling.positive=1",
    ],
    "Dirichlet": [
        "partition.kind=dirichlet",
        "partition.clients=10",
        "partition.alpha=0.5",
        "labelling.positive=2",
        "labelling.overlap=true",
    ],
}


@dataclass(frozen=True)
class Case:
    """A search: the settings that are fixed, and the values to choose from."""

    name: str
    over: list[str]
    settings: list[str] = field(default_factory=list)
    preset: str | None = None
    tried: bool = True
    """was the rule of the choice made with it? The others are only looked at with the rule as it is"""


def _mnist(partition: str, what: str, over: list[str], *settings: str) -> Case:
    return Case(f"MNIST {partition}, {what}", over, [*SHORT, *MNIST, *PARTITIONS[partition], *settings])


def _digits(partition: str, what: str, over: list[str]) -> Case:
    return Case(f"digits {partition}, {what}", over, [*SHORT, *DIGITS, *PARTITIONS[partition]])


def _row(table: int, row: int, tried: bool, over: list[str] | None = None, what: str = "lr") -> Case:
    """A row of a table of the paper at its quick scale, with the paper's network."""
    settings = ["data.name=mnist", "aggregation.rounds=15", "evaluation.every=5", "engine.workers=1"]
    rates = ["aggregation.lr=0.01,0.03,0.1,0.3"]
    return Case(
        f"Table {table}, row {row}, {what}", over or rates, settings, f"table{table}-row{row}-fedpu-quick", tried
    )


CLAMPED = ["aggregation.lr=0.01,0.03,0.1", "method.clamp=reverse,max"]
CASES = [
    *(_mnist(partition, "lr", [RATES]) for partition in PARTITIONS),
    _mnist("10×1", "clamp and lent", ["method.clamp=reverse,max,off", "method.lent=printed,off"]),
    _mnist("Dirichlet", "lent and cross-entropy", ["method.lent=printed,shared,off", "method.cross_entropy=0,1"]),
    *(_mnist(partition, "method", [METHODS]) for partition in ("10×1", "classes", "Dirichlet")),
    *(
        _mnist(partition, "50 rounds, lr and momentum", ["aggregation.lr=0.003,0.01,0.03", MOMENTA], *LONG)
        for partition in ("5×2", "Dirichlet", "2×5")
    ),
    _digits("10×1", "lr", [RATES]),
    _digits("5×2", "lr and momentum", ["aggregation.lr=0.01,0.03,0.1", "aggregation.momentum=0,0.5,0.9"]),
    _digits("classes", "method", [METHODS]),
    *(_row(2, row, tried=True) for row in range(1, 7)),
    *(_row(3, row, tried=True) for row in range(1, 5)),
    _mnist("Dirichlet", "lr, priors guessed as even", [RATES], *GUESS),
    _mnist("Dirichlet", "method, priors guessed as even", [METHODS], *GUESS),
    *(_row(1, row, tried=False) for row in range(1, 7)),
    *(_row(6, row, tried=False) for row in (1, 3)),
    *(_row(1, row, False, CLAMPED, "lr and clamp") for row in (4, 6)),
]
