"""What the server tells clients about a run, and what they answer before the first round."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Container, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from jaxtyping import Float
from torch import Tensor

from fedpu.config import Config
from fedpu.errors import ConfigError
from fedpu.flower.messages import MODEL
from fedpu.flower.replies import (
    MOST_EXAMPLES,
    NAME_RULE,
    BadReply,
    example_count,
    is_name,
    listed,
    only,
    record,
    shown,
    suspicion,
    text,
    whole_number,
)
from fedpu.privacy.mechanism import Vector
from fedpu.record import ModelCard
from fedpu.registry import is_reference

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JOIN = "query.join"
NEGATIVES = "query.negatives"
NEGATIVES_GROUP = "negatives"
"""what the messages of the one sum over clients are grouped by"""

TRAIN_PRIVATE = "train.private"
SECURE_JOIN, SECURE_SHARE, SECURE_OPEN = "query.secure_join", "query.secure_share", "query.secure_open"
SECURE_TRAIN, SECURE_NEGATIVES = "train.secure", "query.secure_negatives"

RUN, CLIENT, COUNTS, SUM = "run", "client", "counts", "co-negatives"
SECURE, PART, NUMBER, LABEL = "secure", "part", "number", "sum"
MOST_DIMENSIONS, MOST_NUMBERS, MOST_CLASSES = 8, 10**8, 10**5
"""of an input, and of a federation: what a client says beyond that is not believed"""


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
    run: str = "new"
    """what the run is called by, also after it was resumed: clients keep their states under it"""

    def to_records(self) -> RecordDict:
        """Return the records that travel."""
        card = "" if self.card is None else json.dumps(self.card.to_dict())
        run = ConfigRecord({"config": self.config, "card": card, "clients": self.clients, "run": self.run})
        if self.co_negatives is not None:
            run[SUM] = self.co_negatives.flatten().tolist()
        return RecordDict({RUN: run})

    @classmethod
    def from_records(cls, records: RecordDict) -> Briefing:
        """Read what a message says."""
        run: Any = records[RUN]
        card = ModelCard.from_dict(json.loads(run["card"])) if run["card"] else None
        total = torch.tensor(run[SUM]).view(len(card.classes), -1) if card is not None and SUM in run else None
        if not re.fullmatch("[0-9a-z]{1,64}", run["run"]):  # a folder of the node's disk is called by it
            raise ConfigError("The server calls its run something that is no name.")
        return cls(run["config"], card, run["clients"], total, run["run"])

    def read_config(self, allowed: Container[str]) -> Config:
        """Return the server's configuration, refusing one that names ``module:Class`` that is not ``allowed``.

        Reading it imports what it names, so that everything of that form counts. The data are not read here.
        """
        values = tomllib.loads(self.config)
        for string in _strings({table: value for table, value in values.items() if table != "data"}):
            if is_reference(string):
                refuse_unless_allowed(string, allowed)
        return Config.from_dict(values)


def refuse_unless_allowed(reference: str, allowed: Container[str]) -> None:
    """Refuse to import what the owner of a node has not allowed."""
    if reference not in allowed:
        raise ConfigError(f"The server asks for '{reference}': to let it, add it to 'allow' in the node's file.")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


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
        fields = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "classes": list(self.classes)}
        records = RecordDict({CLIENT: ConfigRecord(fields)})  # type: ignore[arg-type]
        if self.examples is not None:
            records[COUNTS] = MetricRecord({"examples": self.examples})
        return records

    @classmethod
    def from_records(cls, records: RecordDict) -> Presence:
        """Read an answer (BadReply: it can't be used)."""
        with suspicion():
            only(records, {CLIENT, COUNTS})
            fields = record(records, CLIENT, {"name", "shape", "dtype", "classes"})
            name, dtype = text(fields["name"], "its name"), fields["dtype"]
            if not is_name(name):
                raise BadReply(f"it calls itself '{shown(name)}'; a name is {NAME_RULE}")
            if dtype not in ("uint8", "float32"):
                raise BadReply(f"its inputs are {shown(dtype)}; they should be uint8 or float32")
            sizes = listed(fields["shape"], "the shape of its inputs", MOST_DIMENSIONS)
            shape = tuple(whole_number(size, "a size of its inputs", MOST_NUMBERS) for size in sizes)
            if not shape or math.prod(shape) > MOST_NUMBERS:
                raise BadReply(f"its inputs have the shape {shape}, which no input has")
            named = listed(fields["classes"], "its list of classes", MOST_CLASSES)
            classes = tuple(text(one, "the name of a class") for one in named)
            examples = example_count(record(records, COUNTS, {"examples"})["examples"]) if COUNTS in records else None
            return cls(name, examples, shape, dtype, classes)


def pack_part(weight: int, values: Vector) -> RecordDict:
    """Return a client's part of a sum: its weight and its numbers."""
    return RecordDict({PART: ConfigRecord({"weight": weight, "values": values.astype("<f8").tobytes()})})


def unpack_part(records: RecordDict, length: int) -> tuple[int, Vector]:
    """Read a client's part (BadReply: it is none)."""
    with suspicion():
        only(records, {PART})
        part = record(records, PART, {"weight", "values"})
        weight = whole_number(part["weight"], "what it counts itself", MOST_EXAMPLES)
        if not isinstance(part["values"], bytes) or len(part["values"]) != 8 * length:
            raise BadReply(f"its answer is not {length} numbers")
        values = np.frombuffer(part["values"], "<f8")
        if not np.isfinite(values).all():
            raise BadReply("its answer holds values that are NaN or infinite")
        return weight, values


def pack_secure(message: DataclassInstance) -> ConfigRecord:
    """Return a message of a secure sum as Flower carries it."""
    return ConfigRecord(asdict(message))


def sum_context(content: RecordDict) -> bytes:
    """Return a hash of the model that comes with a message, to which the masks of a secure sum are bound; else nothing.

    A server that sends one client another model than the others, to find its part in the sum, gets no sum.
    """
    return bytes.fromhex(record_hash(content[MODEL])) if MODEL in content else b""


def record_hash(record: Any) -> str:
    """Return a hash of all that a record holds."""
    if not isinstance(record, ArrayRecord):
        return hashlib.sha256(record.deflate()).hexdigest()
    # Flower names an array by hashes that came with it: take the numbers themselves.
    parts = hashlib.sha256()
    for name, array in sorted(record.items()):
        about = [name, array.dtype, list(array.shape), array.stype, len(array.data)]
        parts.update(json.dumps(about).encode() + array.data)
    return parts.hexdigest()
