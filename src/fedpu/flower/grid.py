"""The way to the nodes inside a ServerApp: Flower's Grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from flwr.app import Message
from flwr.serverapp import Grid

from fedpu.flower.private import ObjectPullError, http_grid, inflate_object_from_contents, pull_objects
from fedpu.flower.salt import salt
from fedpu.flower.wire import PART_DELAY, Request, Wire

FOR_ALL = ("run", "model", "invitation")
"""records of a request that are the same for every client, or signed for one with a number that is used once"""


class GridWire(Wire):
    """The wire inside a ServerApp."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        http_grid.pull_objects = pull_message  # type: ignore[assignment, attr-defined]

    def nodes(self) -> list[int]:
        """Return the nodes that are connected."""
        return sorted(self._grid.get_node_ids())

    def names(self) -> dict[int, str]:
        """Return the names that Flower keeps beside the keys."""
        return {node.node_id: node.name for node in self._grid.get_nodes() if node.name}

    def push(self, requests: Sequence[Request]) -> list[str | None]:
        """Send requests as Flower's messages."""
        messages = [
            Message(salt(ask.content, FOR_ALL), ask.node, ask.kind, ttl=ask.seconds, group_id=ask.group)
            for ask in requests
        ]
        return [number or None for number in self._grid.push_messages(messages)]

    def pull(self, numbers: Iterable[str]) -> list[Message]:
        """Fetch replies."""
        return list(self._grid.pull_messages(list(numbers)))


def pull_message(object_ids: list[str], pull_object_fn: Callable[[str], bytes]) -> dict[str, bytes]:
    """Fetch the parts of a message for Flower's Grid, which waits too long for them and fails on those that no message
    can be made of: a reply of one node would end the run. Here it counts as one that did not come.
    """
    parts = pull_objects(object_ids, pull_object_fn, initial_backoff=PART_DELAY)
    try:
        message = inflate_object_from_contents(object_ids[-1], parts, keep_object_contents=True)
    except Exception as error:  # whatever somebody else's bytes lead to
        raise ObjectPullError(object_ids[-1], f"no message can be made of it ({type(error).__name__})") from error
    if not isinstance(message, Message):
        raise ObjectPullError(object_ids[-1], f"it is no message, but {type(message).__name__}")
    return parts
