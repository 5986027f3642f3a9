"""The way to the nodes: Flower's Grid, as little of it as is needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.superlink.grid import http_grid

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
        # Flower's Grid waits for a second, and no setting changes that.
        http_grid.pull_objects = partial(pull_objects, initial_backoff=PART_DELAY)  # type: ignore[attr-defined]

    def nodes(self) -> list[int]:
        """Return the nodes that are connected."""
        return sorted(self._grid.get_node_ids())

    def push(self, requests: Sequence[Request]) -> list[str | None]:
        """Send requests as Flower's messages."""
        messages = [Message(ask.content, ask.node, ask.kind, ttl=ask.seconds, group_id=ask.group) for ask in requests]
        return [number or None for number in self._grid.push_messages(messages)]

    def pull(self, numbers: Iterable[str]) -> list[Message]:
        """Fetch replies."""
        return list(self._grid.pull_messages(list(numbers)))
