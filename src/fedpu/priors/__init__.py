"""priors: the class priors π that each client's risk needs, and what becomes of them inside the unlabelled data."""

from fedpu.priors.source import Priors, set_priors
from fedpu.priors.unlabelled import unlabelled_priors

__all__ = ["Priors", "set_priors", "unlabelled_priors"]
