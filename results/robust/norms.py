"""How long are honest updates, as multiples of their round's median? What ``aggregation.norm_bound`` is chosen by.

    python results/robust/norms.py

Writes ``norms.json``: for every federation the largest multiple in each of ten rounds, by the size of the client. What
is there already is not measured again.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path

from fedpu.aggregation import FedAvg, ServerState, weighted_mean
from fedpu.algorithm import rounds
from fedpu.applications.prepared import prepare
from fedpu.applications.training import first_state, job_of
from fedpu.config import Config
from fedpu.engine.validate import distance
from fedpu.round import Update

FEDERATIONS: dict[str, tuple[str, ...]] = {
    "quickstart, 10 × 1": (),
    "quickstart, supervised": ("method.name=supervised",),
    "quickstart, aligned": ("method.name=aligned",),
    "two classes on each client": ("partition.kind=classes", "partition.classes_per_client=2"),
    "Dirichlet 0.5": ("partition.kind=dirichlet", "partition.alpha=0.5"),
    "Dirichlet 0.1": ("partition.kind=dirichlet", "partition.alpha=0.1"),
    "100 clients, a tenth in each round": ("partition.clients=100", "aggregation.participation=0.1",
                                           "labelling.positive=3", "labelling.overlap=true"),
    "digits, mlp": ("data.name=digits", "model.name=mlp", "augmentation.strong=[]"),
}  # fmt: skip


class Watched(FedAvg):
    """FedAvg that sees each update, and notes the longest."""

    def combine(self, state: ServerState, updates: Iterable[Update]) -> ServerState:
        """Average, and measure."""
        held = list(updates)
        norms = [distance(update.model, state.model) for update in held]
        median, examples = statistics.median(norms), statistics.median(update.examples for update in held)
        ratios = [n / median / max(1.0, u.examples / examples) for n, u in zip(norms, held, strict=True)]
        FOUND.append(max(ratios))
        return state.after(weighted_mean(held))


FOUND: list[float] = []


def longest(changes: tuple[str, ...]) -> list[float]:
    """Return the largest multiple of the median in each round."""
    config = Config.load(preset="quickstart", overrides=["engine.workers=1", *changes])
    settings = {"rounds": 10, "lr": config.aggregation.lr, "batch_size": config.aggregation.batch_size}
    rule = Watched(**settings, participation=config.aggregation.participation)
    federation = prepare(config).federation
    job = job_of(config.model_copy(update={"aggregation": rule}), federation)
    state = first_state(config, job.initial_model(), len(federation), len(federation.classes))
    FOUND.clear()
    with config.engine.start(job) as clients:
        for _ in rounds(clients, rule, state, config.seed):
            pass
    return [round(ratio, 2) for ratio in FOUND]


if __name__ == "__main__":
    file = Path(__file__).parent / "norms.json"
    table = json.loads(file.read_text()) if file.exists() else {}
    for name, changes in FEDERATIONS.items():
        if name in table:
            continue
        table[name] = longest(changes)
        print(name, max(table[name]), flush=True)
        rows = [f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(values)}" for key, values in table.items()]
        file.write_text("{\n" + ",\n".join(rows) + "\n}\n")
