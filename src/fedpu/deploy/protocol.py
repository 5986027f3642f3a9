"""What the server tells clients about a run, and what they answer before the first round."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from jaxtyping import Float
from torch import Tensor

from fedpu.config import Config
from fedpu.record import ModelCard

JOIN = "query.join"
NEGATIVES = "query.negatives"

RUN, CLIENT, COUNTS, SUM = "run", "client", "counts", "co-negatives"


@dataclass(frozen=True)
class Briefing:
    """What every message of the server says about the run. Nothing in it depends on any client's data but the last."""

    config: str
    """the server's configuration file"""
    card: ModelCard | None = None
    """inputs, classes and normalisation; None while the server does not know them"""
    clients: int = 0
    """their number K, once it is known"""
    co_negatives: Float[Tensor, "C C"] | None = None
    """the one sum over clients, where the method needs it"""

    def to_records(self) -> RecordDict:
        """Return the records that travel."""
        card = "" if self.card is None else json.dumps(asdict(self.card))
        run = ConfigRecord({"config": self.config, "card": card, "clients": self.clients})
        if self.co_negatives is not None:
            run[SUM] = self.co_negatives.flatten().tolist()
        return RecordDict({RUN: run})

    @classmethod
    def from_records(cls, records: RecordDict) -> Briefing:
        """Read what a message says."""
        run: Any = records[RUN]
        card = ModelCard.from_dict(json.loads(run["card"])) if run["card"] else None
        total = torch.tensor(run[SUM]).view(len(card.classes), -1) if card is not None and SUM in run else None
        return cls(run["config"], card, run["clients"], total)

    def read_config(self) -> Config:
        """Return the server's configuration."""
        return Config.from_dict(tomllib.loads(self.config))


@dataclass(frozen=True)
class Presence:
    """What a client says of itself: its name, its number of examples, and what its inputs are like."""

    name: str
    examples: int
    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    """as the node's own file names them; none, if it does not"""

    def to_records(self) -> RecordDict:
        """Return the records that travel."""
        told = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "classes": list(self.classes)}
        return RecordDict({CLIENT: ConfigRecord(told), COUNTS: MetricRecord({"examples": self.examples})})  # type: ignore[arg-type]

    @classmethod
    def from_records(cls, records: RecordDict) -> Presence:
        """Read an answer (ValueError: it can't be read)."""
        try:
            told: Any = records[CLIENT]
            counts: Any = records[COUNTS]
            shape = tuple(int(size) for size in told["shape"])
            classes = tuple(str(name) for name in told["classes"])
            return cls(str(told["name"]), int(counts["examples"]), shape, str(told["dtype"]), classes)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its answer can't be read ({type(error).__name__}: {error})") from error


def pack_matrix(matrix: Float[Tensor, "C C"]) -> ArrayRecord:
    """Return a matrix as Flower carries it."""
    return ArrayRecord({SUM: Array(matrix.numpy())})


def unpack_matrix(record: Any) -> Float[Tensor, "C C"]:
    """Read a matrix."""
    return torch.from_numpy(record[SUM].numpy().copy())
