"""A node that is late in round 1, and sends something else than it has learnt in the next: NaN, wrong shapes, a huge
step.

Usage: python bad_node.py NODE.toml
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message

from fedpu.deploy import node
from fedpu.flower.messages import MODEL, TRAIN, pack_tensors, unpack_tensors

LATE = "1"
SECONDS = 25.0
Model = dict[str, torch.Tensor]
HARM: dict[str, Callable[[Model], Model]] = {
    "2": lambda model: {name: value * torch.nan for name, value in model.items()},
    "3": lambda model: {name: value.flatten()[:2] for name, value in model.items()},
    "4": lambda model: {name: value + 1e6 for name, value in model.items()},
}


class BadApp:
    def __init__(self) -> None:
        self.honest = honest()

    def __call__(self, message: Message, context: Context) -> Message:
        reply = self.honest(message, context)
        harm = HARM.get(message.metadata.group_id)
        if message.metadata.message_type != TRAIN:
            return reply
        if message.metadata.group_id == LATE:
            time.sleep(SECONDS)
        if harm is not None:
            reply.content[MODEL] = pack_tensors(harm(unpack_tensors(reply.content[MODEL])))
        return reply


honest = node.deployed_app
if __name__ == "__main__":
    changed: Any = node
    changed.deployed_app = BadApp
    node.run_node(Path(sys.argv[1]), print)
