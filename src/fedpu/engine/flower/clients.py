"""The server's side of a round: work goes out to nodes, updates that pass the checks come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from flwr.app import RecordDict

from fedpu.engine.base import Clients, ModelState, Update, Work
from fedpu.engine.flower.exchange import Exchange
from fedpu.engine.flower.messages import TRAIN, pack_model, pack_work, unpack_update
from fedpu.engine.validate import fault

Complete = Callable[[RecordDict], None]
"""adds to a message what a client must know besides the model and the work"""


class NodeClients(Clients):
    """Clients on nodes."""

    def __init__(self, exchange: Exchange, complete: Complete) -> None:
        self._exchange = exchange
        self._complete = complete

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result, and why."""
        return dict(self._exchange.left_out)

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        """Ask every client that is connected; yield the updates that came in time and are fit to be averaged."""
        exchange, used = self._exchange, 0
        exchange.left_out.clear()
        for client, answer in exchange.ask(TRAIN, work_messages(model, work, self._complete), group(work)):
            try:
                update = unpack_update(answer, client)
                wrong = fault(update.model, model, exchange.rules.max_norm)
            except ValueError as error:
                wrong = str(error)
            if wrong is not None:
                exchange.leave_out(client, wrong)
            else:
                used += 1
                yield update
        exchange.refuse_too_few(used, work[0].round if work else 0)


def work_messages(model: ModelState, work: Sequence[Work], complete: Complete) -> dict[int, RecordDict]:
    """Return the message of each client that is asked to train."""
    packed = pack_model(model)
    messages = {piece.client: pack_work(packed, piece) for piece in work}
    for content in messages.values():
        complete(content)
    return messages


def group(work: Sequence[Work]) -> str:
    """Return what Flower groups a round's messages by: its number, counted from 1."""
    return str(work[0].round + 1) if work else ""
