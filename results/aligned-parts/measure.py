"""What aligned targets stand on, for docs/aligned.md: ``python results/aligned-parts/measure.py [PART …]``.

``ceilings``: targets from the hidden labels, which no client could have, and the same loss on one client that has all
data. ``federations``: other aggregations, many clients, few of them in a round.

Every line goes to ``results.jsonl`` beside this file as soon as it is known, and what is there is not measured again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import fedpu
from fedpu.applications.prepared import prepare
from fedpu.labelling import Client
from fedpu.method import Aligned, ClientRound, Preparation, aligned

RESULTS = Path(__file__).with_name("results.jsonl")
SEEDS = range(3)
QUICKSTART = ["method.name=aligned", "engine.workers=1", "evaluation.every=40"]
MANY = ["labelling.positive=3", "labelling.overlap=true", "aggregation.participation=0.1", "aggregation.batch_size=10"]
FEDERATIONS = {
    "FedAvg": [],
    "FedProx": ["aggregation.name=fedprox", "aggregation.mu=0.1"],
    "FedAdam": ["aggregation.name=fedadam"],
    "FedSGD, 150 rounds": [
        "aggregation.name=fedsgd",
        "aggregation.rounds=150",
        "aggregation.lr=0.1",
        "aggregation.momentum=0.9",
        "aggregation.clip=1.0",
    ],
    "100 clients, a tenth of them in a round, 100 rounds": [
        "partition.clients=100",
        *MANY,
        "aggregation.rounds=100",
    ],
    "MNIST, 1,000 clients, a tenth of them in a round, 30 rounds": [
        "data.name=mnist",
        "partition.clients=1000",
        *MANY,
        "aggregation.rounds=30",
    ],
}


def trained(settings: list[str], seed: int) -> tuple[fedpu.Config, Any]:
    """Train the quickstart with other settings."""
    config = fedpu.Config.load(preset="quickstart", overrides=[*QUICKSTART, *settings, f"seed={seed}"])
    return config, fedpu.run(config)


@contextmanager
def prepared_by(change: Callable[[ClientRound, Preparation], Preparation]) -> Iterator[None]:
    """Let every preparation of an update pass through a function."""
    original = Aligned.prepare
    with mock.patch.object(Aligned, "prepare", lambda self, now: change(now, original(self, now))):
        yield


def key(client: Client) -> bytes:
    """Return what tells a client's data from those of all others."""
    return client.inputs.numpy().tobytes()


def oracle(settings: list[str], seed: int) -> dict[str, Any]:
    """Train on targets that are the hidden labels, everything else as it is."""
    config = fedpu.Config.load(preset="quickstart", overrides=[*QUICKSTART, *settings, f"seed={seed}"])
    ready = prepare(config)
    pieces = ready.hidden.labels.split(ready.federation.offsets.diff().tolist())
    # A client does not know its number, but it has its data.
    truth = {key(ready.federation.client(k)): labels for k, labels in enumerate(pieces)}

    def told(now: ClientRound, found: Preparation) -> Preparation:
        classes = found.examples[aligned.TARGET].shape[1]
        right = torch.nn.functional.one_hot(truth[key(now.client)], classes).float()
        return Preparation(found.examples | {aligned.TARGET: right}, found.state, found.shared)

    with prepared_by(told):
        return {"accuracy": round(100 * fedpu.run(config).accuracy, 2)}


def plain(settings: list[str], seed: int) -> dict[str, Any]:
    """Train as the settings say."""
    return {"accuracy": round(100 * trained(settings, seed)[1].accuracy, 2)}


def parts() -> dict[str, list[tuple[str, Callable[[int], dict[str, Any]]]]]:
    """Return all lines of each part: a name, and what measures it with a seed."""
    one = ["partition.clients=1", "labelling.positive=10", "labelling.fraction=0.05"]
    views = ["method.name=supervised", 'augmentation.weak=["affine"]']
    found: dict[str, list[tuple[str, Callable[[int], dict[str, Any]]]]] = {
        "ceilings": [
            ("hidden labels as targets", lambda seed: oracle([], seed)),
            ("one client with all data, a twentieth of every class labelled", lambda seed: plain(one, seed)),
        ],
        "federations": [],
    }
    for name, settings in FEDERATIONS.items():
        # Where a hundred clients label a class, the lent term as printed counts each of them, and diverges.
        plainly = ["method.name=fedpu", *(["method.lent=shared"] if "clients" in name else [])]
        for method, extra in (("aligned", []), ("fedpu", plainly), ("supervised", views)):
            line = (f"{name}, {method}", lambda seed, s=(*settings, *extra): plain(list(s), seed))
            found["federations"].append(line)
    return found


def main() -> None:
    """Measure what is asked for, seed by seed; one seed of the federations."""
    lines = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()] if RESULTS.exists() else []
    done = {(line["part"], line["name"], line["seed"]) for line in lines}
    every = parts()
    for part in sys.argv[1:] or every:
        for seed in SEEDS if part != "federations" else SEEDS[:1]:
            for name, measure in every[part]:
                if (part, name, seed) not in done:
                    line = {"part": part, "name": name, "seed": seed, **measure(seed)}
                    with RESULTS.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")
                    print(part, name, seed, line["accuracy"], flush=True)


if __name__ == "__main__":
    main()
