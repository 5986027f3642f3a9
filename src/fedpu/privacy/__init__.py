"""privacy: what the server, and whoever sees the model, may learn of a client."""

from fedpu.privacy.guard import Guard, ProtectedClients, Spent, guard_for, layout_for
from fedpu.privacy.mechanism import Layout
from fedpu.privacy.protection import (
    largest_number,
    lent_rules,
    lent_weight,
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
    "ProtectedClients",
    "Spent",
    "guard_for",
    "largest_number",
    "layout_for",
    "lent_rules",
    "lent_weight",
    "mean_update",
    "protect",
    "protect_negatives",
    "secure_rules",
    "summed_negatives",
]
