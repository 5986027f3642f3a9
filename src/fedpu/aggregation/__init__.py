"""aggregation: how the server combines what clients return."""

from fedpu.aggregation.agreement import Agreement
from fedpu.aggregation.base import Aggregation, Mean, ServerState, mean_of, weighted_mean
from fedpu.aggregation.centred_clipping import CentredClipping
from fedpu.aggregation.fedadam import FedAdam
from fedpu.aggregation.fedavg import FedAvg
from fedpu.aggregation.feddyn import FedDyn
from fedpu.aggregation.fedprox import FedProx
from fedpu.aggregation.fedsgd import FedSGD
from fedpu.aggregation.fedyogi import FedYogi
from fedpu.aggregation.geometric_median import GeometricMedian
from fedpu.aggregation.ifca import IFCA
from fedpu.aggregation.multi_krum import MultiKrum
from fedpu.aggregation.plateau import plateau_scale
from fedpu.aggregation.scaffold import Scaffold
from fedpu.aggregation.trimmed_mean import TrimmedMean
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
        "agreement": Agreement,
        "centred-clipping": CentredClipping,
        "geometric-median": GeometricMedian,
        "multi-krum": MultiKrum,
        "trimmed-mean": TrimmedMean,
    },
    group="fedpu.aggregations",
    base=Aggregation,
)

__all__ = [
    "AGGREGATIONS",
    "IFCA",
    "Aggregation",
    "Agreement",
    "CentredClipping",
    "FedAdam",
    "FedAvg",
    "FedDyn",
    "FedProx",
    "FedSGD",
    "FedYogi",
    "GeometricMedian",
    "Mean",
    "MultiKrum",
    "Scaffold",
    "ServerState",
    "TrimmedMean",
    "mean_of",
    "plateau_scale",
    "weighted_mean",
]
