"""Class-prior estimators: one contract, one file each."""

from fedpu.priors.estimators.base import Estimate, Estimator
from fedpu.priors.estimators.bbse import Bbse, confusion_sums
from fedpu.priors.estimators.em import Em
from fedpu.priors.estimators.scores import ScoreEstimator
from fedpu.registry import Registry

ESTIMATORS: Registry[type[Estimator]] = Registry("estimator", {"em": Em, "bbse": Bbse})

__all__ = ["ESTIMATORS", "Bbse", "Em", "Estimate", "Estimator", "ScoreEstimator", "confusion_sums"]
