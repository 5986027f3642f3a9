"""The way to the nodes: Flower's Grid, as little of it as is needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedpu.flower.private import ObjectPullError, http_grid, inflate_object_from_contents, pull_objects

PART_DELAY = 0.05
"""seconds before a part of a message that is still on its way is asked for again; longer each time"""


@dataclass(frozen=True)
class Request:
    """A message to a node, which counts for nothing once its seconds are over."""

    node: int
    kind: str
    content: RecordDict
    group: str
    seconds: float


class Wire(ABC):
    """Sends requests to nodes and fetches the replies that are there."""

    @abstractmethod
    def nodes(self) -> list[int]:
        """Return the nodes that are connected, in the order of their numbers."""

    def names(self) -> dict[int, str]:
        """Return the names under which the owner of the server has registered connected nodes, as far as there are."""
        return {}

    @abstractmethod
    def push(self, requests: Sequence[Request]) -> list[str | None]:
        """Send requests; return the number of each, or None where it was refused."""

    @abstractmethod
    def pull(self, numbers: Iterable[str]) -> list[Message]:
        """Return the replies to those requests that have come in since it was last asked."""


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
        messages = [Message(ask.content, ask.node, ask.kind, ttl=ask.seconds, group_id=ask.group) for ask in requests]
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
