"""The server's side of a round: work goes out to nodes, updates that pass the checks come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from flwr.app import RecordDict

from fedpu.engine.base import Clients, ModelState, Update, Work
from fedpu.engine.flower.exchange import UNREACHABLE, Failure, ask
from fedpu.engine.flower.messages import TRAIN, ModelRecord, pack_model, pack_work, unpack_update
from fedpu.engine.flower.settings import FlowerEngine
from fedpu.engine.flower.wire import Request, Wire
from fedpu.engine.validate import fault
from fedpu.errors import TrainingError


class NodeClients(Clients):
    """Clients on nodes. ``locate`` says which node a client is at now (None: nowhere), ``complete`` adds to a message
    what the client must know besides the model and the work, ``name`` what to call a client in the record.
    """

    def __init__(
        self,
        wire: Wire,
        rules: FlowerEngine,
        locate: Callable[[], dict[int, int]],
        complete: Callable[[RecordDict], None],
        name: Callable[[int], str] = str,
    ) -> None:
        self._wire = wire
        self._rules = rules
        self._locate = locate
        self._complete = complete
        self._name = name
        self._left_out: dict[str, str] = {}

    @property
    def left_out(self) -> dict[str, str]:
        """Who was asked in the last round and took no part in its result, and why."""
        return dict(self._left_out)

    def update(self, model: ModelState, work: Sequence[Work]) -> Iterator[Update]:
        """Ask every client that is connected; yield the updates that came in time and are fit to be averaged."""
        self._left_out = {}
        nodes = self._locate()
        for piece in work:
            if piece.client not in nodes:
                self._left_out[self._name(piece.client)] = UNREACHABLE
        asked = [piece for piece in work if piece.client in nodes]
        used = 0
        packed = pack_model(model)
        requests = [self._request(packed, piece, nodes[piece.client]) for piece in asked]
        for piece, (_, answer) in zip(asked, ask(self._wire, requests), strict=True):
            update = self._checked(answer, piece, model)
            if update is not None:
                used += 1
                yield update
        if used < self._rules.min_clients:
            told = "; ".join(f"{name}: {reason}" for name, reason in self._left_out.items())
            raise TrainingError(
                f"Round {work[0].round + 1} had {used} usable updates, and engine.min_clients is "
                f"{self._rules.min_clients}. {told}"
            )

    def _request(self, model: ModelRecord, piece: Work, node: int) -> Request:
        content = pack_work(model, piece)
        self._complete(content)
        return Request(node, TRAIN, content, str(piece.round + 1), self._rules.deadline)

    def _checked(self, answer: RecordDict | Failure, piece: Work, model: ModelState) -> Update | None:
        """Return the update in an answer, or note why there is none."""
        try:
            if isinstance(answer, Failure):
                raise ValueError(str(answer))
            update = unpack_update(answer, piece.client)
            wrong = fault(update.model, model, self._rules.max_norm)
            if wrong is not None:
                raise ValueError(wrong)
        except ValueError as error:
            self._left_out[self._name(piece.client)] = str(error)
            return None
        return update
