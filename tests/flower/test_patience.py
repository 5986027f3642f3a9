"""A node's question for messages is answered when there are some, and nobody waits who must not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedpu[flower]'")

from fedpu.flower import patience
from fedpu.flower.patience import LOOKS, PULL, SENDS, News, telling, waiting
from fedpu.flower.private import PullMessagesResponse
from fedpu.flower.wire import WAITS

HAS_TIME = [(WAITS.encode(), b"1")]


class Link:
    """An application that has messages, or none, and counts how often it was asked."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.messages = 0
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += scope["path"] == PULL
        while (await receive()).get("more_body", False):
            pass
        response = PullMessagesResponse()
        for _ in range(self.messages):
            response.messages_list.add()
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": response.SerializeToString()})


class Asking:
    """One request; ``leave`` hangs up."""

    def __init__(self, app: Any, path: str, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
        self.sent: list[Any] = []
        self._unread = [{"type": "http.request", "body": body}]
        self._left = asyncio.Event()
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    def leave(self) -> None:
        self._left.set()

    async def _receive(self) -> Any:
        if self._unread:
            return self._unread.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def messages(self) -> int:
        return len(PullMessagesResponse.FromString(self.sent[1]["body"]).messages_list)


async def soon(task: asyncio.Task[Any]) -> None:
    await asyncio.wait_for(asyncio.shield(task), 5)


async def deliver(link: Link, news: News) -> None:
    """A ServerApp sends messages, and looks for the answers."""
    app = telling(link, news)
    link.messages = 1
    await Asking(app, SENDS, []).task
    await Asking(app, LOOKS, []).task


def test_a_node_waits_until_messages_are_sent_with_all_of_their_parts() -> None:
    async def play() -> None:
        link, news = Link(), News()
        node = Asking(waiting(link, news), PULL, HAS_TIME)
        await asyncio.sleep(0.05)
        owner = telling(link, news)
        link.messages = 1
        await Asking(owner, LOOKS, []).task
        await Asking(owner, SENDS, []).task
        await asyncio.sleep(0.05)
        assert (node.sent, link.asked) == ([], 1), "the parts are still on their way"
        await Asking(owner, LOOKS, []).task
        await soon(node.task)
        assert (node.messages, link.asked) == (1, 2)

    asyncio.run(play())


def test_what_is_there_is_answered_at_once() -> None:
    async def play() -> None:
        link, news = Link(), News()
        link.messages = 2
        node = Asking(waiting(link, news), PULL, HAS_TIME)
        await soon(node.task)
        assert node.messages == 2

    asyncio.run(play())


@pytest.mark.parametrize(("status", "headers"), [(200, []), (401, HAS_TIME), (403, HAS_TIME), (500, HAS_TIME)])
def test_who_did_not_ask_for_it_or_is_refused_does_not_wait(status: int, headers: list[tuple[bytes, bytes]]) -> None:
    async def play() -> None:
        link = Link(status)
        node = Asking(waiting(link, News()), PULL, headers)
        await soon(node.task)
        assert (node.sent[0]["status"], link.asked) == (status, 1)

    asyncio.run(play())


def test_nothing_is_fetched_for_a_node_that_has_gone() -> None:
    async def play() -> None:
        link, news = Link(), News()
        node = Asking(waiting(link, news), PULL, HAS_TIME)
        await asyncio.sleep(0.05)
        node.leave()
        await soon(node.task)
        await deliver(link, news)
        assert (node.sent, link.asked) == ([], 1), "the message is there for the node that comes back"

    asyncio.run(play())


def test_waiting_ends_in_time_and_when_the_superlink_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOOK", 0.02)

    async def play() -> None:
        stopped: list[bool] = []
        link, news = Link(), News(lambda: bool(stopped))
        node = Asking(waiting(link, news), PULL, HAS_TIME)
        await asyncio.sleep(0.05)
        stopped.append(True)
        await soon(node.task)
        assert (node.messages, link.asked) == (0, 1)
        stopped.clear()
        monkeypatch.setattr(patience, "LONGEST", 0.1)
        begun = time.monotonic()
        late = Asking(waiting(link, news), PULL, HAS_TIME)
        await soon(late.task)
        assert late.messages == 0
        assert time.monotonic() - begun >= 0.1

    asyncio.run(play())


def test_a_question_that_is_too_long_is_refused() -> None:
    async def play() -> None:
        link = Link()
        node = Asking(waiting(link, News()), PULL, HAS_TIME, b"x" * 5000)
        await soon(node.task)
        assert (node.sent[0]["status"], link.asked) == (413, 0)

    asyncio.run(play())
