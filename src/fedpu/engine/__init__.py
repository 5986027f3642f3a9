"""engine: how rounds are run."""

from fedpu.engine.base import Clients, Engine, Job, ModelState, Update, Work, copy_state
from fedpu.engine.client import ClientTrainer
from fedpu.engine.local import LocalEngine, ReferenceEngine
from fedpu.engine.pool import cores, end_with_parent
from fedpu.registry import Registry

ENGINES: Registry[type[Engine]] = Registry("engine", {"local": LocalEngine, "reference": ReferenceEngine})

__all__ = [
    "ENGINES",
    "ClientTrainer",
    "Clients",
    "Engine",
    "Job",
    "LocalEngine",
    "ModelState",
    "ReferenceEngine",
    "Update",
    "Work",
    "copy_state",
    "cores",
    "end_with_parent",
]
