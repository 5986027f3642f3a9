"""The ``[engine]`` table of the Flower engine, and the way into Flower's simulation."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from typing import Annotated, Literal

from pydantic import Field

from fedpu.engine.base import Clients, Engine, Job
from fedpu.errors import ConfigError


class FlowerEngine(Engine):
    """Clients behind Flower: simulated nodes on this machine, or real ones after ``fedpu deploy``.

    A round goes on with the updates that are there at the deadline and pass the checks; the record says who was left
    out, and why. With fewer than ``min_clients`` of them the run stops, and can be resumed.
    """

    name: Literal["flower"] = "flower"
    workers: int = Field(0, ge=0, description="processes that train clients, one core each; 0: one per core")
    clients: Annotated[int, Field(ge=1)] | list[str] | None = Field(
        None,
        union_mode="left_to_right",
        description="clients that a deployment waits for before its first round: how many, or their names; else "
        "partition.clients",
    )
    wait: float = Field(600.0, gt=0, le=10**6, description="seconds that a deployment waits for its clients to connect")
    min_clients: int = Field(1, ge=1, description="updates that a round needs; with fewer the run stops")
    deadline: float = Field(600.0, gt=0, le=10**6, description="seconds that a client has for its update")
    max_norm: float | None = Field(
        None, gt=0, description="an update further than this from the global model is rejected"
    )
    largest_client: float = Field(
        100.0,
        ge=1,
        description="a deployed client that says it has more than this many times as many examples as the median of "
        "the others can't take part: its word would outweigh theirs",
    )
    report_risk: bool = Field(
        False, description="do deployed clients report the mean of each risk term beside their update?"
    )

    def start(self, job: Job) -> AbstractContextManager[Clients]:
        """Start Flower's simulation with one simulated node per client."""
        require_flower(simulation=True)
        from fedpu.engine.flower.simulation import simulated_clients

        return simulated_clients(self, job)


def require_flower(simulation: bool = False) -> None:
    """Refuse to go on without Flower, saying how to install it."""
    missing = [name for name in ("flwr", "ray")[: 1 + simulation] if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"This needs '{missing[0]}', which is not installed: pip install 'fedpu[flower]'.")
