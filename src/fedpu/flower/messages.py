"""What travels: models and work to clients, updates and counts back; all of it is listed here."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import safetensors.torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedpu.flower.replies import BadReply, example_count, only, record, suspicion, terms
from fedpu.round import Broadcast, Tensors, Update, Work, prefixed, under

TRAIN = "train"

MODEL, WORK, EXTRAS, COUNTS, RISK = "model", "work", "extras", "counts", "risk"
"""names of the records of a training message and of its reply"""
IN_ONE_PIECE = 4 * 2**20
SCALARS = tuple(field.name for field in fields(Work) if field.name != "extras")

TensorRecord = ConfigRecord | ArrayRecord


def pack_tensors(tensors: Tensors) -> TensorRecord:
    """Return tensors as Flower carries them: the bytes of a safetensors file.

    Flower sends an array in three requests and more, each way, and that is what a round of small networks costs. So
    bytes travel in one piece as long as they are few, and as an array, which Flower cuts into parts, when they are
    many.
    """
    packed = safetensors.torch.save({name: value.clone() for name, value in tensors.items()})
    if len(packed) <= IN_ONE_PIECE:
        return ConfigRecord({MODEL: packed})
    return ArrayRecord({MODEL: Array(np.frombuffer(packed, np.uint8))})


def unpack_tensors(record: Any) -> Tensors:
    """Read tensors."""
    packed = record[MODEL]
    return safetensors.torch.load(packed if isinstance(packed, bytes) else packed.numpy().tobytes())


def pack_sent(sent: Broadcast) -> TensorRecord:
    """Return what every client of a round is sent: the model, and what goes with it."""
    return pack_tensors(prefixed({"model": sent.model, "extras": sent.extras, "shared": sent.shared}))


def pack_work(sent: TensorRecord, work: Work) -> RecordDict:
    """Return what the server asks of one client in one round; what everybody is sent is packed once."""
    asked = {name: value for name in SCALARS if (value := getattr(work, name)) is not None}
    content = RecordDict({MODEL: sent, WORK: ConfigRecord(asked)})
    if work.extras:
        content[EXTRAS] = pack_tensors(work.extras)
    return content


def unpack_work(content: RecordDict) -> tuple[Broadcast, Work]:
    """Read what the server sends and asks."""
    asked: dict[str, Any] = dict(content[WORK])
    work = Work(**asked, extras=unpack_tensors(content[EXTRAS]) if EXTRAS in content else {})
    tensors = unpack_tensors(content[MODEL])
    return Broadcast(under("model", tensors), under("extras", tensors), under("shared", tensors), work.round), work


def pack_update(update: Update, report_risk: bool) -> RecordDict:
    """Return what a client answers: its parameters and what goes with them, its number of examples, and the terms of
    its loss where they are wanted.
    """
    tensors = prefixed({"model": update.model, "extras": update.extras, "shared": update.shared})
    reply = RecordDict({MODEL: pack_tensors(tensors), COUNTS: MetricRecord({"examples": update.examples})})
    if report_risk:
        reply[RISK] = MetricRecord(dict(update.terms))
    return reply


def unpack_update(content: RecordDict, client: int, report_risk: bool = True) -> Update:
    """Read an answer. It comes from somebody else's machine, so that anything may be wrong with it (BadReply)."""
    with suspicion():
        only(content, {MODEL, COUNTS, RISK} if report_risk else {MODEL, COUNTS})
        examples = example_count(record(content, COUNTS, {"examples"})["examples"])
        found = terms(content, RISK, report_risk)
        tensors = unpack_tensors(record(content, MODEL, {MODEL}))
        groups = {group: under(group, tensors) for group in ("model", "extras", "shared")}
        if sum(len(group) for group in groups.values()) < len(tensors):
            raise BadReply("it sent tensors that were not asked for")
    return Update(client, examples, groups["model"], found, groups["extras"], groups["shared"])
