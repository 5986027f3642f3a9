"""What the server tells clients about a run, and what they answer before the first round."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from jaxtyping import Float
from torch import Tensor

from fedpu.config import Config
from fedpu.privacy.mechanism import Vector
from fedpu.record import ModelCard

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JOIN = "query.join"
NEGATIVES = "query.negatives"

TRAIN_PRIVATE = "train.private"
SECURE_JOIN, SECURE_SHARE, SECURE_OPEN = "query.secure_join", "query.secure_share", "query.secure_open"
SECURE_TRAIN, SECURE_NEGATIVES = "train.secure", "query.secure_negatives"

RUN, CLIENT, COUNTS, SUM = "run", "client", "counts", "co-negatives"
SECURE, PART, NUMBER = "secure", "part", "number"


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
    examples: int | None
    """None where [privacy] hides it"""
    shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    """as the node's own file names them; none, if it does not"""

    def to_records(self) -> RecordDict:
        """Return the records that travel."""
        told = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "classes": list(self.classes)}
        records = RecordDict({CLIENT: ConfigRecord(told)})  # type: ignore[arg-type]
        if self.examples is not None:
            records[COUNTS] = MetricRecord({"examples": self.examples})
        return records

    @classmethod
    def from_records(cls, records: RecordDict) -> Presence:
        """Read an answer (ValueError: it can't be read)."""
        try:
            told: Any = records[CLIENT]
            counts: Any = records.get(COUNTS)
            examples = None if counts is None else int(counts["examples"])
            shape = tuple(int(size) for size in told["shape"])
            classes = tuple(str(name) for name in told["classes"])
            return cls(str(told["name"]), examples, shape, str(told["dtype"]), classes)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its answer can't be read ({type(error).__name__}: {error})") from error


def pack_part(weight: int, values: Vector) -> RecordDict:
    """Return a client's part of a sum: its weight and its numbers."""
    return RecordDict({PART: ConfigRecord({"weight": weight, "values": values.astype("<f8").tobytes()})})


def unpack_part(records: RecordDict, length: int) -> tuple[int, Vector]:
    """Read a client's part (ValueError: it is none)."""
    try:
        part: Any = records[PART]
        weight, values = int(part["weight"]), np.frombuffer(part["values"], "<f8")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its answer can't be read ({type(error).__name__}: {error})") from error
    if len(values) != length or not np.isfinite(values).all() or not 0 <= weight <= 10**12:
        raise ValueError(f"its answer is not {length} numbers and a weight")
    return weight, values


def pack_secure(message: DataclassInstance) -> ConfigRecord:
    """Return a message of a secure sum as Flower carries it."""
    return ConfigRecord(asdict(message))


Kind = TypeVar("Kind")


def unpack_secure(kind: type[Kind], record: Any) -> Kind:
    """Read a message of a secure sum (ValueError: it is none)."""
    try:
        return kind(**dict(record))
    except TypeError as error:
        raise ValueError(f"its answer can't be read ({error})") from error
