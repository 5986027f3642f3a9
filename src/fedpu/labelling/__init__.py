"""labelling: who labels what."""

from fedpu.labelling.federation import (
    UNLABELLED,
    ClassSummary,
    Client,
    Federation,
    HiddenTruth,
    Scenario,
    TestSet,
    without_priors,
)
from fedpu.labelling.held_out import draw_held_out, split
from fedpu.labelling.holdings import Holdings, holdings
from fedpu.labelling.labelling import Labelling, label, label_everything

__all__ = [
    "UNLABELLED",
    "ClassSummary",
    "Client",
    "Federation",
    "HiddenTruth",
    "Holdings",
    "Labelling",
    "Scenario",
    "TestSet",
    "draw_held_out",
    "holdings",
    "label",
    "label_everything",
    "split",
    "without_priors",
]
