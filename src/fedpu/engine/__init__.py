"""engine: how rounds are run."""

from fedpu.engine.base import Clients, Engine, Job, copy_state, expected_from, initial_model, trained_parameters
from fedpu.engine.client import ClientTrainer, update_client
from fedpu.engine.flower import FlowerEngine
from fedpu.engine.local import LocalEngine, MachineEngine, ReferenceEngine
from fedpu.engine.pool import cores, end_with_parent
from fedpu.engine.predict import client_outputs, predict
from fedpu.engine.screen import Screen
from fedpu.engine.states import ClientStates
from fedpu.registry import Registry

ENGINES: Registry[type[Engine]] = Registry(
    "engine",
    {"local": LocalEngine, "reference": ReferenceEngine, "flower": FlowerEngine},
    group="fedpu.engines",
    base=Engine,
)

__all__ = [
    "ENGINES",
    "ClientStates",
    "ClientTrainer",
    "Clients",
    "Engine",
    "FlowerEngine",
    "Job",
    "LocalEngine",
    "MachineEngine",
    "ReferenceEngine",
    "Screen",
    "client_outputs",
    "copy_state",
    "cores",
    "end_with_parent",
    "expected_from",
    "initial_model",
    "predict",
    "trained_parameters",
    "update_client",
]
