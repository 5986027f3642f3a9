"""risk: what a client minimises, as pure functions of logits and labels that return named terms."""

from fedpu.risk import equations
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
from fedpu.risk.released import released_older_risk, released_risk
from fedpu.risk.surrogates import SURROGATES, Surrogate
from fedpu.risk.task import Clamp, Expectation, Task, Terms, client_task, plain_task

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
    "Surrogate",
    "Task",
    "Terms",
    "client_task",
    "co_negatives",
    "conventional_pu_risk",
    "equations",
    "fedpu_form",
    "fedpu_risk",
    "fedpu_table",
    "lent_weights",
    "linear_risk",
    "nnpu_risk",
    "plain_task",
    "released_older_risk",
    "released_risk",
    "upu_risk",
]
