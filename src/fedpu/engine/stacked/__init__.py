"""stacked: clients trained together, a leading dimension a client."""

from fedpu.engine.stacked.network import StackedNetwork
from fedpu.engine.stacked.trainer import StackTrainer, can_stack, stacks

__all__ = ["StackTrainer", "StackedNetwork", "can_stack", "stacks"]
