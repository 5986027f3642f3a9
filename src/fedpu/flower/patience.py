"""A node that asks for messages when there are none waits for the answer, in place of asking again and again.

Flower answers at once that there is nothing. A request costs its application some milliseconds of CPU, so that fifty
nodes that look five times a second keep it busy with nothing else. Here the answer is held back until a ServerApp has
sent something, or some seconds are over. Flower's application is asked first: only a node whose signature it has
checked, and for whom there is nothing, can make anybody wait. A plain SuperLink does not know the header with which
nodes ask for this, and answers as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedpu.flower.private import PullMessagesResponse
from fedpu.flower.wire import WAITS

LONGEST = 15.0
"""seconds for which an answer is held back: fewer than those after which a node that is gone may come back"""
LOOK = 0.5
"""seconds between two looks whether the SuperLink is being stopped"""
LARGEST = 4096
"""bytes of a node's question; its own has some tens"""
PULL = "/v1/fleet/pull-messages"
SENDS, LOOKS = "/v1/runtime/push-messages", "/v1/runtime/pull-messages"
"""how a ServerApp announces messages, of which the parts follow one by one, and how it looks for answers thereafter"""


class News:
    """Wakes up whoever waits for a message of a ServerApp."""

    def __init__(self, closing: Callable[[], bool] = lambda: False) -> None:
        """``closing`` says whether there is to be no more waiting."""
        self._next = asyncio.Event()
        self.closing = closing

    def tell(self) -> None:
        """Say that messages have been sent."""
        self._next.set()
        self._next = asyncio.Event()

    def next(self) -> asyncio.Event:
        """Return what happens when messages are sent from now on."""
        return self._next


def telling(app: ASGIApp, news: News) -> ASGIApp:
    """Return the application, which tells when a ServerApp has sent messages with all of their parts.

    At the announcement would be too early: all nodes would ask for parts that are still on their way, in vain.
    """
    announced = False

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal announced
        path = scope["path"] if scope["type"] == "http" else None
        if path == LOOKS and announced:
            announced = False
            news.tell()
        await app(scope, receive, send)
        announced = announced or path == SENDS

    return told


def waiting(app: ASGIApp, news: News) -> ASGIApp:
    """Return the application, which lets nodes wait that say that they have time."""

    async def patient(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PULL or not _has_time(scope):
            await app(scope, receive, send)
            return
        question = await _read(receive)
        if question is None:
            return  # who has asked is gone
        if len(question) > LARGEST:
            await send({"type": "http.response.start", "status": 413, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": b""})
            return
        sent = news.next()
        answer = await _asked(app, scope, question)
        if _says_nothing(answer):
            if not await _wait(sent, receive, news.closing):
                return  # a message that is handed to nobody would be lost
            if sent.is_set():
                answer = await _asked(app, scope, question)
        for message in answer:
            await send(message)

    return patient


def _has_time(scope: Scope) -> bool:
    return any(name == WAITS.encode() for name, _ in scope["headers"])


async def _read(receive: Receive) -> bytes | None:
    """Return what was asked, or a little more than is allowed; nothing, if the other side has gone."""
    question: bytes = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part: bytes = message.get("body", b"")
        question += part
        if not message.get("more_body", False) or len(question) > LARGEST:
            return question


async def _asked(app: ASGIApp, scope: Scope, question: bytes) -> list[Message]:
    """Return an application's whole answer."""
    answer: list[Message] = []
    unread = [question]

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await asyncio.Future()  # the other side stays; whether it has is looked at elsewhere

    async def send(message: Message) -> None:
        answer.append(message)

    await app(dict(scope, state=dict(scope.get("state", {}))), receive, send)
    return answer


def _says_nothing(answer: list[Message]) -> bool:
    """Is it Flower's answer that there is no message?"""
    if not answer or answer[0].get("status") != 200:
        return False
    body = b"".join(message.get("body", b"") for message in answer[1:])
    try:
        return not PullMessagesResponse.FromString(body).messages_list
    except DecodeError:
        return False


async def _wait(sent: asyncio.Event, receive: Receive, closing: Callable[[], bool]) -> bool:
    """Wait until there are messages, the time is over, or all is closed; say False if the other side has gone."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LONGEST
    gone, woken = asyncio.ensure_future(receive()), asyncio.ensure_future(sent.wait())
    try:
        while not closing() and loop.time() < end:
            done, _ = await asyncio.wait((gone, woken), timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
            if gone in done:
                return False
            if woken in done:
                break
        return True
    finally:
        for task in (gone, woken):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
