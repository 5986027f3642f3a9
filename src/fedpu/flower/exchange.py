"""Asking clients and waiting for their answers, with a deadline, and keeping the list of those that gave none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from flwr.app import Message, RecordDict

from fedpu.errors import TrainingError
from fedpu.flower.private import ErrorCode
from fedpu.flower.replies import BadReply, shown, suspicion
from fedpu.flower.salt import take_salt_off
from fedpu.flower.wire import Request, Wire

POLL, LONGEST_POLL, POLL_SHARE = 0.1, 1.0, 0.02
"""seconds between two looks for replies: a share of the time waited, within bounds"""

NO_ANSWER = "it did not answer before the deadline"
UNREACHABLE = "it is not connected"
Value = TypeVar("Value")


@runtime_checkable
class Rules(Protocol):
    """What an exchange must know of the settings of a run."""

    @property
    def deadline(self) -> float:
        """seconds that a client has for an answer"""

    @property
    def min_clients(self) -> int:
        """answers that a round needs"""

    @property
    def max_norm(self) -> float | None:
        """the largest update that is taken"""


class Failure(str):
    """Why a node gave no answer."""


class Exchange:
    """Asks clients by their numbers. ``locate`` says at which node each of them is now, ``name`` what it is called."""

    def __init__(
        self,
        wire: Wire,
        rules: Rules,
        locate: Callable[[], dict[int, int]],
        name: Callable[[int], str] = str,
    ) -> None:
        self.rules = rules
        self.left_out: dict[str, str] = {}
        """who was asked since the list was last emptied and gave nothing that can be used, and why"""
        self._wire = wire
        self._locate = locate
        self.name = name

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

    def answers(
        self,
        kind: str,
        contents: Mapping[int, RecordDict],
        group: str,
        read_one: Callable[[int, RecordDict], Value],
    ) -> Iterator[tuple[int, Value]]:
        """Ask, and yield what ``read_one`` makes of each answer.

        This is the one place at which answers are judged: whatever one of them holds, and whatever reading it raises,
        costs its sender the round and is noted.
        """
        for client, content in self.ask(kind, contents, group):
            try:
                with suspicion():
                    value = read_one(client, content)
            except BadReply as error:
                self.leave_out(client, str(error))
            else:
                yield client, value

    def leave_out(self, client: int, reason: str) -> None:
        """Note that nothing of a client can be used."""
        self.left_out[self.name(client)] = reason

    def refuse_too_few(self, used: int, round_: int) -> None:
        """Stop a run in which too few clients are left."""
        if used < self.rules.min_clients:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            raise TrainingError(
                f"Round {round_ + 1} had {used} usable updates, and engine.min_clients is {self.rules.min_clients}. "
                f"{reasons}"
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
                answered = waiting.pop(reply.metadata.reply_to_message_id, None)
                if answered is not None:  # else it is a reply to something that was not asked
                    answers[answered] = read(reply, requests[answered].node)
            if index not in answers:
                if time.monotonic() > end:
                    answers[index] = Failure(NO_ANSWER)
                else:
                    time.sleep(min(LONGEST_POLL, max(POLL, POLL_SHARE * (time.monotonic() - begun))))
        yield request, answers.pop(index)


def read(reply: Message, node: int) -> RecordDict | Failure:
    """Return what a reply to a request to this node holds, or why it holds nothing."""
    if not reply.has_error():
        if reply.metadata.src_node_id != node:
            return Failure(f"node {reply.metadata.src_node_id} answered in its place")
        take_salt_off(reply.content)
        return reply.content
    if reply.error.code in (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE):
        return Failure(NO_ANSWER)  # its time was over
    if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
        return Failure(UNREACHABLE)
    return Failure(shown(reply.error.reason or f"Flower's error {reply.error.code}"))
