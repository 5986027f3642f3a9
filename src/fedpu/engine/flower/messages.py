"""What travels: global models and work to clients, updates and counts back; all of it is listed here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import safetensors.torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from safetensors import SafetensorError

from fedpu.engine.base import ModelState, Update, Work

TRAIN = "train"
JOIN = "query.join"

MODEL, WORK, COUNTS, RISK = "model", "work", "counts", "risk"
"""names of the records of a training message and of its reply"""
IN_ONE_PIECE = 4 * 2**20

ModelRecord = ConfigRecord | ArrayRecord


def pack_model(model: ModelState) -> ModelRecord:
    """Return parameters and buffers as Flower carries them: the bytes of a safetensors file.

    Flower sends an array in three requests and more, each way, and that is what a round of small networks costs. So
    bytes travel in one piece as long as they are few, and as an array, which Flower cuts into parts, when they are
    many.
    """
    packed = safetensors.torch.save(model)
    if len(packed) <= IN_ONE_PIECE:
        return ConfigRecord({MODEL: packed})
    return ArrayRecord({MODEL: Array(np.frombuffer(packed, np.uint8))})


def unpack_model(record: Any) -> ModelState:
    """Read parameters and buffers."""
    packed = record[MODEL]
    return safetensors.torch.load(packed if isinstance(packed, bytes) else packed.numpy().tobytes())


def pack_work(model: ModelRecord, work: Work) -> RecordDict:
    """Return what the server asks of one client in one round; the packed model is shared by all messages."""
    asked = {key: value for key, value in asdict(work).items() if value is not None}
    if work.priors is not None:
        asked["priors"] = list(work.priors)
    return RecordDict({MODEL: model, WORK: ConfigRecord(asked)})


def unpack_work(content: RecordDict) -> tuple[ModelState, Work]:
    """Read what the server asks."""
    asked: dict[str, Any] = dict(content[WORK])
    if "priors" in asked:
        asked["priors"] = tuple(asked["priors"])
    return unpack_model(content[MODEL]), Work(**asked)


def pack_update(update: Update, report_risk: bool) -> RecordDict:
    """Return what a client answers: its parameters, its number of examples, and risk terms where they are wanted."""
    reply = RecordDict({MODEL: pack_model(update.model), COUNTS: MetricRecord({"examples": update.examples})})
    if report_risk:
        reply[RISK] = MetricRecord(dict(update.terms))
    return reply


def unpack_update(content: RecordDict, client: int) -> Update:
    """Read an answer. It comes from somebody else's machine, so that anything may be wrong with it (ValueError)."""
    try:
        counts: Any = content[COUNTS]
        examples = int(counts["examples"])
        terms: dict[str, Any] = dict(content[RISK]) if RISK in content else {}
        model = unpack_model(content[MODEL])
    except (KeyError, TypeError, ValueError, AttributeError, OSError, EOFError, SafetensorError) as error:
        raise ValueError(f"its answer can't be read ({type(error).__name__}: {error})") from error
    if not 0 < examples <= 10**12:
        raise ValueError(f"it says that it has {examples} examples")
    return Update(client, examples, model, {name: float(value) for name, value in terms.items()})
