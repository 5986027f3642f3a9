"""Asking nodes and waiting for their answers, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode

from fedpu.engine.flower.wire import Request, Wire

POLL = 0.1
"""seconds between two looks for replies"""

NO_ANSWER = "it did not answer before the deadline"
UNREACHABLE = "it is not connected"


class Failure(str):
    """Why a node gave no answer."""


def ask(wire: Wire, requests: Sequence[Request]) -> Iterator[tuple[Request, RecordDict | Failure]]:
    """Send the requests and yield each with its answer, in their order, as soon as that can be.

    A node that does not answer in time, or only with an error, yields a :class:`Failure` that says so.
    """
    end = time.monotonic() + max((request.seconds for request in requests), default=0.0)
    numbers = wire.push(requests)
    waiting = {number: index for index, number in enumerate(numbers) if number is not None}
    answers: dict[int, RecordDict | Failure] = {
        index: Failure(UNREACHABLE) for index, number in enumerate(numbers) if number is None
    }
    for index, request in enumerate(requests):
        while index not in answers:
            for reply in wire.pull(list(waiting)):
                answers[waiting.pop(reply.metadata.reply_to_message_id)] = read(reply)
            if index not in answers:
                if time.monotonic() > end:
                    answers[index] = Failure(NO_ANSWER)
                else:
                    time.sleep(POLL)
        yield request, answers.pop(index)


def read(reply: Message) -> RecordDict | Failure:
    """Return what a reply holds, or why it holds nothing."""
    if not reply.has_error():
        return reply.content
    if reply.error.code in (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE):
        return Failure(NO_ANSWER)  # its time was over
    if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
        return Failure(UNREACHABLE)
    return Failure((reply.error.reason or f"Flower's error {reply.error.code}").strip())
