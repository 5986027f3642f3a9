"""The client's side of a round: a ClientApp that trains as the engines of one machine do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedpu.engine.base import ModelState, Update, Work
from fedpu.engine.client import update_client
from fedpu.engine.flower.messages import pack_update, unpack_work
from fedpu.errors import FedpuError
from fedpu.labelling import Client
from fedpu.method import Method
from fedpu.risk import Task

REFUSED = 1000
"""code of the errors that a client answers with a sentence; Flower's own are smaller"""


@dataclass(frozen=True, eq=False)
class Assignment:
    """Everything that an update depends on besides the global model and the work asked for."""

    client: Client
    method: Method
    task: Task
    network: nn.Module
    seed: int
    report_risk: bool

    def update(self, model: ModelState, work: Work) -> Update:
        """Run ClientUpdate, with one thread as everywhere."""
        torch.set_num_threads(1)
        return update_client(self.network, model, self.client, self.method, self.task, work, self.seed)


Assign = Callable[[RecordDict, ModelState, Work, Context], Assignment]
"""makes an assignment of a message's content, the global model and the work that it holds, and the node's context"""


def client_app(assign: Assign) -> ClientApp:
    """Return a ClientApp that answers training messages; what a client is, ``assign`` knows."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answer(message, lambda: _update(message.content, context, assign))

    return app


def answer(message: Message, work: Callable[[], RecordDict]) -> Message:
    """Return the reply with what ``work`` gives; a mistake that somebody can put right travels as its sentence."""
    try:
        return Message(work(), reply_to=message)
    except FedpuError as error:
        return Message(Error(REFUSED, str(error)), reply_to=message)


def _update(content: RecordDict, context: Context, assign: Assign) -> RecordDict:
    model, work = unpack_work(content)
    mine = assign(content, model, work, context)
    return pack_update(mine.update(model, work), mine.report_risk)
