"""The server's side of a round: work goes out to nodes, updates that pass the checks come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flwr.app import RecordDict

from fedpu.engine.base import Clients
from fedpu.engine.states import ClientStates
from fedpu.engine.validate import Expected, fault
from fedpu.flower.exchange import Exchange
from fedpu.flower.messages import TRAIN, pack_sent, pack_work, unpack_update
from fedpu.flower.replies import BadReply
from fedpu.flower.state_folder import StateFolder
from fedpu.round import Broadcast, Update, Work

Complete = Callable[[RecordDict], None]
"""adds to a message what a client must know besides the model and the work"""


@dataclass(frozen=True, eq=False)
class Promised:
    """What every update is held to."""

    expected: Expected
    """names, shapes and types of its tensors besides the model"""
    examples: Sequence[int]
    """n_k of every client, as it joined"""
    report_risk: bool
    """Are the terms of the risk asked for?"""


class NodeClients(Clients):
    """Clients on nodes. ``states`` is where simulated ones keep what stays with them; real ones keep it themselves."""

    trusted = False

    def __init__(
        self, exchange: Exchange, complete: Complete, promised: Promised, states: StateFolder | None = None
    ) -> None:
        self._exchange = exchange
        self._complete = complete
        self._promised = promised
        self._states = states

    def name(self, client: int) -> str:
        """Return what a client is called."""
        return self._exchange.name(client)

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result, and why."""
        return dict(self._exchange.left_out)

    def states(self) -> ClientStates:
        """Return what simulated clients keep; what real ones keep is none of the server's business."""
        return ClientStates() if self._states is None else ClientStates(self._states.latest())

    def restore(self, states: ClientStates) -> None:
        """Go on with the states of a checkpoint, in a simulation."""
        if self._states is None:
            super().restore(states)
        else:
            self._states.restore(states)

    def update(self, sent: Broadcast, work: Sequence[Work], each: bool = True) -> Iterator[Update]:
        """Ask every client that is connected; yield the updates that came in time and are fit to be averaged."""
        exchange, promised, used = self._exchange, self._promised, 0
        exchange.left_out.clear()

        def read(client: int, content: RecordDict) -> Update:
            update = unpack_update(content, client, promised.report_risk)
            wrong = fault(update, sent, promised.expected, exchange.rules.max_norm, promised.examples[client])
            if wrong is not None:
                raise BadReply(wrong)
            return update

        messages = work_messages(sent, work, self._complete)
        for _, update in exchange.answers(TRAIN, messages, group(work), read):
            used += 1
            yield update
        exchange.refuse_too_few(used, work[0].round if work else 0)


def work_messages(sent: Broadcast, work: Sequence[Work], complete: Complete) -> dict[int, RecordDict]:
    """Return the message of each client that is asked to train."""
    packed = pack_sent(sent)
    messages = {piece.client: pack_work(packed, piece) for piece in work}
    for content in messages.values():
        complete(content)
    return messages


def group(work: Sequence[Work]) -> str:
    """Return what Flower groups a round's messages by: its number, counted from 1."""
    return str(work[0].round + 1) if work else ""
