"""Asking clients and waiting for their answers, with a deadline, and keeping the list of those that gave none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode

from fedpu.engine.flower.settings import FlowerEngine
from fedpu.engine.flower.wire import Request, Wire
from fedpu.errors import TrainingError

POLL, LONGEST_POLL, POLL_SHARE = 0.1, 1.0, 0.02
"""seconds between two looks for replies: a share of the time waited, within bounds"""

NO_ANSWER = "it did not answer before the deadline"
UNREACHABLE = "it is not connected"


class Failure(str):
    """Why a node gave no answer."""


class Exchange:
    """Asks clients by their numbers. ``locate`` says at which node each of them is now, ``name`` what it is called."""

    def __init__(
        self,
        wire: Wire,
        rules: FlowerEngine,
        locate: Callable[[], dict[int, int]],
        name: Callable[[int], str] = str,
    ) -> None:
        self.rules = rules
        self.left_out: dict[str, str] = {}
        """who was asked since the list was last emptied and gave nothing that can be used, and why"""
        self._wire = wire
        self._locate = locate
        self._name = name

    def ask(self, kind: str, contents: Mapping[int, RecordDict], group: str) -> Iterator[tuple[int, RecordDict]]:
        """Send each client its message and yield the answers, in the order of ``contents``; note who gave none."""
        nodes = self._locate()
        for client in contents.keys() - nodes.keys():
            self.leave_out(client, UNREACHABLE)
        asked = [client for client in contents if client in nodes]
        requests = [Request(nodes[client], kind, contents[client], group, self.rules.deadline) for client in asked]
        for client, (_, answer) in zip(asked, ask(self._wire, requests), strict=True):
            if isinstance(answer, Failure):
                self.leave_out(client, str(answer))
            else:
                yield client, answer

    def leave_out(self, client: int, reason: str) -> None:
        """Note that nothing of a client can be used."""
        self.left_out[self._name(client)] = reason

    def refuse_too_few(self, used: int, round_: int) -> None:
        """Stop a run in which too few clients are left."""
        if used < self.rules.min_clients:
            told = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            raise TrainingError(
                f"Round {round_ + 1} had {used} usable updates, and engine.min_clients is {self.rules.min_clients}. "
                f"{told}"
            )


def ask(wire: Wire, requests: Sequence[Request]) -> Iterator[tuple[Request, RecordDict | Failure]]:
    """Send the requests and yield each with its answer, in their order, as soon as that can be.

    A node that does not answer in time, or only with an error, yields a :class:`Failure` that says so.
    """
    begun = time.monotonic()
    end = begun + max((request.seconds for request in requests), default=0.0)
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
                    time.sleep(min(LONGEST_POLL, max(POLL, POLL_SHARE * (time.monotonic() - begun))))
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
