"""partition: who holds which examples."""

from fedpu.partition.base import Partition, Partitioner
from fedpu.partition.classes import Classes
from fedpu.partition.column import Column
from fedpu.partition.dirichlet import Dirichlet
from fedpu.partition.iid import Iid
from fedpu.partition.rotated import Rotated
from fedpu.partition.saved import Saved
from fedpu.registry import Registry

PARTITIONS: Registry[type[Partitioner]] = Registry(
    "partition",
    {
        "iid": Iid,
        "classes": Classes,
        "dirichlet": Dirichlet,
        "rotated": Rotated,
        "column": Column,
        "saved": Saved,
    },
    group="fedpu.partitions",
    base=Partitioner,
)

__all__ = ["PARTITIONS", "Classes", "Column", "Dirichlet", "Iid", "Partition", "Partitioner", "Rotated", "Saved"]
