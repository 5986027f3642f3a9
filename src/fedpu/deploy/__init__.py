"""deploy: the same run on real nodes. Flower carries the messages; data and labels stay where they are.

What needs Flower is imported from its modules, not from here.
"""

from fedpu.deploy.settings import NodeSettings

__all__ = ["NodeSettings"]
