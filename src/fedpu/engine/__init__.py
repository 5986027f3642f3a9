"""engine: how rounds are run."""

from fedpu.engine.base import Clients, Engine, Job, ModelState, Update, Work, copy_state, initial_model
from fedpu.engine.client import ClientTrainer
from fedpu.engine.flower import FlowerEngine
from fedpu.engine.local import LocalEngine, ReferenceEngine
from fedpu.engine.pool import cores, end_with_parent
from fedpu.registry import Registry

ENGINES: Registry[type[Engine]] = Registry(
    "engine", {"local": LocalEngine, "reference": ReferenceEngine, "flower": FlowerEngine}
)

__all__ = [
    "ENGINES",
    "ClientTrainer",
    "Clients",
    "Engine",
    "FlowerEngine",
    "Job",
    "LocalEngine",
    "ModelState",
    "ReferenceEngine",
    "Update",
    "Work",
    "copy_state",
    "cores",
    "end_with_parent",
    "initial_model",
]
