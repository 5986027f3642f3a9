"""Class-prior estimators: one contract, one file each."""

from fedpu.priors.estimators.base import Estimate, Estimator
from fedpu.priors.estimators.bbe import Bbe
from fedpu.priors.estimators.bbse import Bbse
from fedpu.priors.estimators.count import Count
from fedpu.priors.estimators.elkan_noto import ElkanNoto
from fedpu.priors.estimators.em import Em
from fedpu.priors.estimators.km import Km
from fedpu.priors.estimators.pe import Pe
from fedpu.priors.estimators.penalized_l1 import PenalizedL1
from fedpu.priors.estimators.scores import ScoreEstimator
from fedpu.registry import Registry

ESTIMATORS: Registry[type[Estimator]] = Registry(
    "estimator",
    {
        "penalized-l1": PenalizedL1,
        "pe": Pe,
        "km": Km,
        "bbe": Bbe,
        "elkan-noto": ElkanNoto,
        "em": Em,
        "count": Count,
        "bbse": Bbse,
    },
    group="fedpu.estimators",
    base=Estimator,
)

__all__ = [
    "ESTIMATORS",
    "Bbe",
    "Bbse",
    "Count",
    "ElkanNoto",
    "Em",
    "Estimate",
    "Estimator",
    "Km",
    "Pe",
    "PenalizedL1",
    "ScoreEstimator",
]
