"""method: what a client minimises."""

from fedpu.method.base import Forward, Method
from fedpu.method.conventional import ConventionalPU
from fedpu.method.cross_entropy import PositiveOnly, Supervised
from fedpu.method.fedpu import FedPU
from fedpu.registry import Registry

METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        "fedpu": FedPU,
        "positive-only": PositiveOnly,
        "supervised": Supervised,
        "conventional-pu": ConventionalPU,
    },
)

__all__ = ["METHODS", "ConventionalPU", "FedPU", "Forward", "Method", "PositiveOnly", "Supervised"]
