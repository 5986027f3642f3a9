"""aggregation: how the server combines what clients return."""

from fedpu.aggregation.base import Aggregation, ServerState, weighted_mean
from fedpu.aggregation.fedavg import FedAvg
from fedpu.aggregation.fedprox import FedProx
from fedpu.aggregation.fedsgd import FedSGD
from fedpu.registry import Registry

AGGREGATIONS: Registry[type[Aggregation]] = Registry(
    "aggregation", {"fedavg": FedAvg, "fedsgd": FedSGD, "fedprox": FedProx}
)

__all__ = ["AGGREGATIONS", "Aggregation", "FedAvg", "FedProx", "FedSGD", "ServerState", "weighted_mean"]
