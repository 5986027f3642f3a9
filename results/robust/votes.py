"""Can the score without hidden labels tell who lies? Beside the direction of updates, on the same runs of FedAvg.

    python results/robust/votes.py

In every fourth round each client's update is taken out of the mean, and all *other* clients say by how much their
observable likelihood gets worse without it. Summed up over the rounds so far, liars should have the least votes.
``votes.json`` has, for every attack, how often a liar stands below an honest client: 1 is always, 0.5 is chance. Beside
it the same of what ``agreement`` goes by, the mean cosine of all that clients have changed so far.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from liars import config
from torch import Tensor

from fedpu.aggregation import FedAvg, ServerState, weighted_mean
from fedpu.aggregation.agreement import mean_cosines, unit
from fedpu.aggregation.robust import flat, moved
from fedpu.algorithm import rounds
from fedpu.applications.prepared import prepare
from fedpu.applications.training import first_state, job_of
from fedpu.faults import FaultyClients, mislabelled
from fedpu.round import Update
from fedpu.validation import LABELLED, TEMPERATURES, HeldOut, tallies

AS_TRAINED = LABELLED + 1 + TEMPERATURES.index(1)
EVERY = 4


class Judged(FedAvg):
    """FedAvg, with a jury that has no say."""

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Average, and let everybody judge everybody else."""
        held = sorted(updates, key=lambda update: update.client)
        JURY.see(state, held)
        return state.after(weighted_mean(held))


class Jury:
    """Keeps votes and directions, by client."""

    def start(self, network: torch.nn.Module, held_out: HeldOut, liars: list[int]) -> None:
        """Begin with nobody accused."""
        self.network, self.held_out, self.liars = network, held_out, liars
        self.votes: Tensor = torch.zeros(len(held_out.sizes))
        self.directions: Tensor | float = 0.0
        self.found: dict[str, list[float]] = {"votes": [], "cosines": []}

    def see(self, state: ServerState, held: list[Update]) -> None:
        """Count the votes of a round."""
        vectors = torch.stack([flat(update.model, state.model) for update in held])
        shares = torch.tensor([float(update.examples) for update in held], dtype=torch.float64)
        shares = shares / shares.sum()
        self.directions = self.directions + unit(vectors)
        if state.round % EVERY:
            return
        everybody = list(range(len(held)))
        mean = shares @ vectors
        whole = self._losses(state, mean, held)
        for k in everybody:
            without = self._losses(state, mean - shares[k] * vectors[k], held) - whole
            self.votes[k] += float(without.sum() - without[k])
        among = torch.ones(len(held), dtype=torch.bool)
        own = unit(self.directions)
        self.found["votes"].append(self._told_apart(self.votes))
        self.found["cosines"].append(self._told_apart(mean_cosines(own @ own.T, among)))

    def _losses(self, state: ServerState, change: Tensor, held: list[Update]) -> Tensor:
        self.network.load_state_dict(moved(state.model, change, held))
        told = tallies(self.network, self.held_out, torch.device("cpu"))
        return told[:, AS_TRAINED] / told[:, 0]

    def _told_apart(self, values: Tensor) -> float:
        honest = [k for k in range(len(values)) if k not in self.liars]
        pairs = [float(values[liar] < values[k]) for liar in self.liars for k in honest]
        return sum(pairs) / len(pairs)


JURY = Jury()


def measure(setting: str, attack: str, seed: int) -> dict[str, list[float]]:
    """Run FedAvg with liars; return how well both tell them apart, round by round."""
    settings = config(setting, "fedavg", attack, seed)
    federation = mislabelled(prepare(settings).federation, settings.faults, seed)
    values = settings.aggregation.model_dump(exclude={"name"})
    rule = Judged(**values)
    job = job_of(settings.model_copy(update={"aggregation": rule}), federation)
    state = first_state(settings, job.initial_model(), len(federation), len(federation.classes))
    faulty = settings.faults.drawn(seed, len(federation))
    held_out = HeldOut(federation, federation.summary(torch.arange(len(federation))), federation.sizes)
    JURY.start(job.initial_model(), held_out, list(faulty))
    with settings.engine.start(job) as clients:
        for _ in rounds(FaultyClients(clients, settings.faults, faulty, state.model, seed), rule, state, seed):
            pass
    return JURY.found


if __name__ == "__main__":
    table: list[dict[str, Any]] = []
    for setting in ("digits", "digits-10x1"):
        for attack in ("sign flip", "label swap", "stale", "a little is enough"):
            found = measure(setting, attack, seed=0)
            rounded = {name: [round(value, 2) for value in values] for name, values in found.items()}
            table.append({"setting": setting, "attack": attack, "seed": 0} | rounded)
            text = "[\n" + ",\n".join(json.dumps(row) for row in table) + "\n]\n"
            (Path(__file__).parent / "votes.json").write_text(text)
