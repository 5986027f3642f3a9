"""stacked: clients trained together, with a leading dimension for the client.

Only :mod:`network` is imported from here: the trainer stands on the whole of the engine.
"""

from fedpu.engine.stacked.network import StackedNetwork

__all__ = ["StackedNetwork"]
