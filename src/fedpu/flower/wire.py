"""The way to the nodes, as little of it as is needed; Flower's own is in ``grid.py``, which nodes need not import."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flwr.app import Message, RecordDict

PART_DELAY = 0.05
"""seconds before a part of a message that is still on its way is asked for again; longer each time"""

WAITS = "fedpu-waits"
"""the header with which a node says that it has time for an answer"""


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
