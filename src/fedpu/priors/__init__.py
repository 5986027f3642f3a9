"""priors: the class priors π that each client's risk needs, and what becomes of them inside the unlabelled data."""

from fedpu.priors.estimators import ESTIMATORS, Estimate, Estimator
from fedpu.priors.local import (
    confidence,
    divided,
    estimate_client,
    guessing_warning,
    model_shares,
    own_estimate,
    population_priors,
)
from fedpu.priors.source import Priors, set_priors
from fedpu.priors.unlabelled import unlabelled_priors

__all__ = [
    "ESTIMATORS",
    "Estimate",
    "Estimator",
    "Priors",
    "confidence",
    "divided",
    "estimate_client",
    "guessing_warning",
    "model_shares",
    "own_estimate",
    "population_priors",
    "set_priors",
    "unlabelled_priors",
]
