"""The client's side of a round: a ClientApp that trains as the engines of one machine do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedpu.engine.base import Job
from fedpu.engine.client import update_client
from fedpu.errors import FedpuError
from fedpu.flower.messages import pack_update, unpack_work
from fedpu.flower.private import Mod
from fedpu.flower.salt import take_salt_off
from fedpu.flower.state_folder import StateFolder
from fedpu.labelling import Client
from fedpu.round import Broadcast, Update, Work

REFUSED = 1000
"""code of the errors that a client answers with a sentence; Flower's own are smaller"""


@dataclass(frozen=True, eq=False)
class Assignment:
    """Everything that an update depends on besides what the server sends and asks."""

    job: Job
    client: Client
    network: nn.Module
    states: StateFolder
    report_risk: bool

    def update(self, sent: Broadcast, work: Work) -> Update:
        """Run ClientUpdate, with one thread as everywhere; what stays with the client stays on this disk."""
        torch.set_num_threads(1)
        job = self.job
        state = self.states.load(work.client, work.round) if job.stateful else None
        trained = update_client(job, self.network, self.client, sent, work, state, job.co_negatives())
        for client, kept in trained.states.items():
            self.states.save(client, work.round, kept)
        return trained.update


Assign = Callable[[RecordDict, Context], Assignment]
"""makes an assignment of a message's content and the node's context"""


def client_app(assign: Assign, mods: Sequence[Mod] = ()) -> ClientApp:
    """Return a ClientApp that answers training messages; what a client is, ``assign`` knows. Mods see them first."""
    app = ClientApp(mods=[_without_salt, *mods])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return answer(message, lambda: _update(message.content, context, assign))

    return app


def _without_salt(message: Message, context: Context, answer_it: Callable[[Message, Context], Message]) -> Message:
    take_salt_off(message.content)
    return answer_it(message, context)


def answer(message: Message, work: Callable[[], RecordDict]) -> Message:
    """Return the reply with what ``work`` gives; a mistake that somebody can put right travels as its sentence."""
    try:
        return Message(work(), reply_to=message)
    except FedpuError as error:
        return Message(Error(REFUSED, str(error)), reply_to=message)


def _update(content: RecordDict, context: Context, assign: Assign) -> RecordDict:
    sent, work = unpack_work(content)
    mine = assign(content, context)
    return pack_update(mine.update(sent, work), mine.report_risk)
