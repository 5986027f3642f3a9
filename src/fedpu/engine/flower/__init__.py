"""flower: client updates on Flower's nodes, simulated on one machine or real ones.

Only :mod:`settings` is imported from here, so that fedpu works where Flower is not installed.
"""

from fedpu.engine.flower.settings import FlowerEngine, require_flower

__all__ = ["FlowerEngine", "require_flower"]
