"""stacked: clients trained together, with a leading dimension for the client.

Only the networks are imported from here: the trainer stands on the whole of the engine.
"""

from fedpu.engine.stacked.network import StackedNetwork
from fedpu.engine.stacked.twin import Twin, twin_of, why_no_twin
from fedpu.engine.stacked.wide import WideNetwork

__all__ = ["StackedNetwork", "Twin", "WideNetwork", "twin_of", "why_no_twin"]
