"""aggregation: how the server combines what clients return."""

from fedpu.aggregation.base import Aggregation, Mean, ServerState, mean_of, weighted_mean
from fedpu.aggregation.fedadam import FedAdam
from fedpu.aggregation.fedavg import FedAvg
from fedpu.aggregation.feddyn import FedDyn
from fedpu.aggregation.fedprox import FedProx
from fedpu.aggregation.fedsgd import FedSGD
from fedpu.aggregation.fedyogi import FedYogi
from fedpu.aggregation.ifca import IFCA
from fedpu.aggregation.scaffold import Scaffold
from fedpu.registry import Registry

AGGREGATIONS: Registry[type[Aggregation]] = Registry(
    "aggregation",
    {
        "fedavg": FedAvg,
        "fedsgd": FedSGD,
        "fedprox": FedProx,
        "scaffold": Scaffold,
        "feddyn": FedDyn,
        "fedadam": FedAdam,
        "fedyogi": FedYogi,
        "ifca": IFCA,
    },
    group="fedpu.aggregations",
    base=Aggregation,
)

__all__ = [
    "AGGREGATIONS",
    "IFCA",
    "Aggregation",
    "FedAdam",
    "FedAvg",
    "FedDyn",
    "FedProx",
    "FedSGD",
    "FedYogi",
    "Mean",
    "Scaffold",
    "ServerState",
    "mean_of",
    "weighted_mean",
]
