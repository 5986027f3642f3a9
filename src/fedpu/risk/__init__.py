"""risk: what a client minimises, as pure functions of logits and labels that return named terms."""

from fedpu.risk import equations
from fedpu.risk.constants import Clamp, Expectation, RiskConstants, Terms, client_constants, plain_constants
from fedpu.risk.conventional import conventional_pu_risk, nnpu_risk, upu_risk
from fedpu.risk.federated import fedpu_risk
from fedpu.risk.lent import Lent, co_negatives, lent_weights
from fedpu.risk.linear import (
    CROSS_ENTROPY_FORM,
    PADDING,
    LinearForm,
    LinearRisk,
    fedpu_form,
    fedpu_table,
    linear_risk,
)
from fedpu.risk.loss import FedPULoss
from fedpu.risk.observable import client_posterior, consistent_priors, labelled_odds, observable_loss
from fedpu.risk.released import released_older_risk, released_risk
from fedpu.risk.surrogates import SURROGATES, Surrogate

__all__ = [
    "CROSS_ENTROPY_FORM",
    "PADDING",
    "SURROGATES",
    "Clamp",
    "Expectation",
    "FedPULoss",
    "Lent",
    "LinearForm",
    "LinearRisk",
    "RiskConstants",
    "Surrogate",
    "Terms",
    "client_constants",
    "client_posterior",
    "co_negatives",
    "consistent_priors",
    "conventional_pu_risk",
    "equations",
    "fedpu_form",
    "fedpu_risk",
    "fedpu_table",
    "labelled_odds",
    "lent_weights",
    "linear_risk",
    "nnpu_risk",
    "observable_loss",
    "plain_constants",
    "released_older_risk",
    "released_risk",
    "upu_risk",
]
