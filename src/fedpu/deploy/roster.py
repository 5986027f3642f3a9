"""Who takes part: clients are known by their names and numbered in the order of them, wherever they connect from."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median_low

from flwr.app import RecordDict

from fedpu.data import Normalisation
from fedpu.deploy.protocol import JOIN, Briefing, Presence
from fedpu.engine import FlowerEngine
from fedpu.errors import TrainingError
from fedpu.flower.exchange import NO_ANSWER, UNREACHABLE, Failure, read
from fedpu.flower.replies import BadReply
from fedpu.flower.wire import Request, Wire
from fedpu.record import ModelCard

PAUSE = 0.5
ASK_AGAIN = 30.0
"""seconds after which a node that gave no usable answer is asked again who it is"""
Tell = Callable[[str], None]


class Roster:
    """The nodes that are connected, and which client each of them is.

    A node's number stands for its key, which Flower has checked. A name belongs to the key that the server's owner has
    registered under it; where nobody has registered names, to the node that is here under it.
    """

    def __init__(self, wire: Wire, rules: FlowerEngine, briefing: Briefing, tell: Tell, counted: bool = True) -> None:
        """``counted`` says whether clients tell their numbers of examples, which [privacy] hides."""
        self._wire = wire
        self._rules = rules
        self._briefing = briefing
        self._tell = tell
        self._counted = counted
        self._present: dict[int, Presence] = {}
        self._asked: dict[str, int] = {}
        self._again: dict[int, float] = {}
        self._refusals: dict[int, str] = {}
        self._names: dict[int, str] = {}

    def gather(self, whom: int | Sequence[str]) -> list[Presence]:
        """Wait for that many clients, or for those names; return them in the order of their names."""
        if isinstance(whom, int):
            here = self._wait(lambda found: len(self._credible(found)) >= whom, f"{whom} clients")
            names = sorted(self._credible(here), key=_natural)[:whom]
        else:
            here = self._wait(lambda found: self._credible(found).keys() >= set(whom), ", ".join(whom))
            names = sorted(whom, key=_natural)
        return [self._present[here[name]] for name in names]

    def _credible(self, here: dict[str, int]) -> dict[str, int]:
        """Return the nodes without those whose number of examples is out of all proportion to the others'.

        A client counts in the mean by that number, and nobody can check it.
        """
        counts = {node: self._present[node].examples for node in here.values()}
        found = {}
        for name, node in here.items():
            own, others = counts[node], [n for other, n in counts.items() if other != node and n is not None]
            if own is None or not others or own <= self._rules.largest_client * median_low(others):
                found[name] = node
                continue
            refusal = (
                f"Node {node} can't take part: '{name}' says that it has {own} examples, and the median of the others "
                f"is {median_low(others)}. If that is true, raise engine.largest_client "
                f"({self._rules.largest_client:g})."
            )
            if self._refusals.get(node) != refusal:
                self._refusals[node] = refusal
                self._tell(refusal)
        return found

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
        if any(node not in self._names for node in connected):
            self._names |= self._wire.names()
        now = time.monotonic()
        new = [node for node in connected if node not in self._present and self._again.get(node, 0) <= now]
        requests = [Request(node, JOIN, self._briefing.to_records(), "join", ASK_AGAIN) for node in new]
        for node, number in zip(new, self._wire.push(requests) if requests else [], strict=True):
            self._again[node] = now + ASK_AGAIN
            if number is not None:
                self._asked[number] = node
        self._present = {node: one for node, one in self._present.items() if node in connected or node in self._names}
        for reply in self._wire.pull(list(self._asked)) if self._asked else []:
            if reply.metadata.reply_to_message_id in self._asked:  # else it is a reply to nothing
                node = self._asked.pop(reply.metadata.reply_to_message_id)
                self._meet(node, read(reply, node))
        return {self._present[node].name: node for node in connected if node in self._present}

    def _meet(self, node: int, answer: RecordDict | Failure) -> None:
        """Note who a node is, or tell why it can't take part; silence is no reason yet."""
        if isinstance(answer, Failure) and answer in (NO_ANSWER, UNREACHABLE):
            return
        try:
            if isinstance(answer, Failure):
                raise BadReply(str(answer))
            presence = Presence.from_records(answer)
            self._refuse_other_name(node, presence.name)
            self._present[node] = self._believed(presence)
            self._refusals.pop(node, None)
        except BadReply as error:
            self._refusals[node] = f"Node {node} can't take part: {error}"
            self._tell(self._refusals[node])

    def _refuse_other_name(self, node: int, name: str) -> None:
        """Refuse a node that calls itself by a name that is not its own."""
        registered = self._names.get(node)
        if registered == "":
            raise BadReply(
                f"it calls itself '{name}', but its key was registered without a name. Register it with 'fedpu deploy "
                "register'."
            )
        if registered is not None and registered != name:
            raise BadReply(f"it calls itself '{name}', but its key was registered for '{registered}'.")
        holder = next((other for other, one in self._present.items() if one.name == name and other != node), None)
        if holder is not None:
            raise BadReply(f"it calls itself '{name}', and node {holder}, which has another key, is here as '{name}'.")

    def _believed(self, presence: Presence) -> Presence:
        """Return what a client says of itself, without a number that nobody asked for; refuse what can't be used."""
        if not self._counted:
            return replace(presence, examples=None)
        if presence.examples is None:
            raise BadReply(f"'{presence.name}' does not say how many examples it has.")
        card = self._briefing.card
        if card is not None and (presence.shape, presence.dtype) != (card.shape, card.dtype):
            raise BadReply(
                f"the inputs of '{presence.name}' are {presence.shape} of {presence.dtype}; those of the federation "
                f"are {card.shape} of {card.dtype}."
            )
        return presence

    def _wait(self, ready: Callable[[dict[str, int]], bool], whom: str, enough: int | None = None) -> dict[str, int]:
        end, shown = time.monotonic() + self._rules.wait, -1
        while not ready(found := self._here()):
            if len(found) != shown:
                shown = len(found)
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
    if first.dtype == "int64":
        return ModelCard(first.shape, first.dtype, first.classes, Normalisation.of_tokens())
    channels = first.shape[0]
    middle = (0.5, 0.25, 1 / 255) if first.dtype == "uint8" else (0.0, 1.0, 1.0)
    mean, std, scale = middle
    return ModelCard(
        first.shape, first.dtype, first.classes, Normalisation(scale, (mean,) * channels, (std,) * channels)
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort names as people do: 2 before 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
