"""Who takes part: clients are known by their names and numbered in the order of them, wherever they connect from."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from flwr.app import RecordDict

from fedpu.data import Normalisation
from fedpu.deploy.protocol import JOIN, Briefing, Presence
from fedpu.engine import FlowerEngine
from fedpu.engine.flower.exchange import NO_ANSWER, UNREACHABLE, Failure, read
from fedpu.engine.flower.wire import Request, Wire
from fedpu.errors import TrainingError
from fedpu.record import ModelCard

PAUSE = 0.5
ASK_AGAIN = 30.0
"""seconds after which a node that gave no usable answer is asked again who it is"""
Tell = Callable[[str], None]


class Roster:
    """The nodes that are connected, and which client each of them is."""

    def __init__(self, wire: Wire, rules: FlowerEngine, briefing: Briefing, tell: Tell) -> None:
        self._wire = wire
        self._rules = rules
        self._briefing = briefing
        self._tell = tell
        self._present: dict[int, Presence] = {}
        self._asked: dict[str, int] = {}
        self._again: dict[int, float] = {}
        self._refusals: dict[int, str] = {}

    def gather(self, whom: int | Sequence[str]) -> list[Presence]:
        """Wait for that many clients, or for those names; return them in the order of their names."""
        if isinstance(whom, int):
            here = self._wait(lambda found: len(found) >= whom, f"{whom} clients")
            names = sorted(here, key=_natural)[:whom]
        else:
            here = self._wait(lambda found: found.keys() >= set(whom), ", ".join(whom))
            names = sorted(whom, key=_natural)
        return [self._present[here[name]] for name in names]

    def await_return(self, names: Sequence[str]) -> None:
        """Wait for the clients of a run that is resumed, and go on without those that are late."""
        self._wait(lambda found: found.keys() >= set(names), "the clients of this run", enough=self._rules.min_clients)

    def locate(self, names: Sequence[str]) -> dict[int, int]:
        """Return the node of each client that is connected now, asking nodes that are new who they are."""
        here = self._here()
        return {number: here[name] for number, name in enumerate(names) if name in here}

    def _here(self) -> dict[str, int]:
        """Return the node of each name. Nodes that are new are asked who they are, without waiting for the answer."""
        connected = self._wire.nodes()
        now = time.monotonic()
        new = [node for node in connected if node not in self._present and self._again.get(node, 0) <= now]
        requests = [Request(node, JOIN, self._briefing.to_records(), "join", ASK_AGAIN) for node in new]
        for node, number in zip(new, self._wire.push(requests) if requests else [], strict=True):
            self._again[node] = now + ASK_AGAIN
            if number is not None:
                self._asked[number] = node
        for reply in self._wire.pull(list(self._asked)) if self._asked else []:
            self._meet(self._asked.pop(reply.metadata.reply_to_message_id), read(reply))
        found: dict[str, int] = {}
        for node in connected:
            if node in self._present:
                found.setdefault(self._present[node].name, node)
        return found

    def _meet(self, node: int, answer: RecordDict | Failure) -> None:
        """Note who a node is, or tell why it can't take part; silence is no reason yet."""
        if isinstance(answer, Failure) and answer in (NO_ANSWER, UNREACHABLE):
            return
        try:
            if isinstance(answer, Failure):
                raise ValueError(str(answer))
            self._present[node] = Presence.from_records(answer)
            self._refusals.pop(node, None)
        except ValueError as error:
            self._refusals[node] = f"Node {node} can't take part: {error}"
            self._tell(self._refusals[node])

    def _wait(self, ready: Callable[[dict[str, int]], bool], whom: str, enough: int | None = None) -> dict[str, int]:
        end, told = time.monotonic() + self._rules.wait, -1
        while not ready(found := self._here()):
            if len(found) != told:
                told = len(found)
                self._tell(f"waiting for {whom}; here: {', '.join(sorted(found, key=_natural)) or 'nobody'}")
            if time.monotonic() > end:
                if enough is not None and len(found) >= enough:
                    break
                told_why = "".join(f"\n{refusal}" for refusal in self._refusals.values())
                raise TrainingError(
                    f"After {self._rules.wait:g} seconds (engine.wait) {len(found)} clients have joined, "
                    f"and the run waits for {whom}.{told_why}"
                )
            time.sleep(PAUSE)
        return found


def common_card(members: Sequence[Presence]) -> ModelCard:
    """Return what all clients agree on, with a normalisation that depends on nobody's data."""
    first = members[0]
    for other in members[1:]:
        if (other.shape, other.dtype, other.classes) != (first.shape, first.dtype, first.classes):
            raise TrainingError(
                f"'{first.name}' and '{other.name}' do not have the same inputs and classes: {first.shape} of "
                f"{first.dtype} in {len(first.classes)} classes, and {other.shape} of {other.dtype} in "
                f"{len(other.classes)}."
            )
    channels = first.shape[0]
    middle = (0.5, 0.25, 1 / 255) if first.dtype == "uint8" else (0.0, 1.0, 1.0)
    mean, std, scale = middle
    return ModelCard(
        first.shape, first.dtype, first.classes, Normalisation(scale, (mean,) * channels, (std,) * channels)
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort names as people do: 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
