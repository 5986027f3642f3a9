"""privacy: what the server, and whoever sees the model, may learn of a client."""

from fedpu.privacy.guard import Guard, Spent, guard_for
from fedpu.privacy.mechanism import Layout
from fedpu.privacy.protection import (
    lent_rules,
    mean_update,
    protect,
    protect_negatives,
    secure_rules,
    summed_negatives,
)
from fedpu.privacy.settings import Privacy

__all__ = [
    "Guard",
    "Layout",
    "Privacy",
    "Spent",
    "guard_for",
    "lent_rules",
    "mean_update",
    "protect",
    "protect_negatives",
    "secure_rules",
    "summed_negatives",
]
