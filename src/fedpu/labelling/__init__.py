"""labelling: who labels what."""

from fedpu.labelling.federation import UNLABELLED, Client, Evaluation, Facts, Federation, Scenario
from fedpu.labelling.labelling import Labelling, label, label_everything

__all__ = [
    "UNLABELLED",
    "Client",
    "Evaluation",
    "Facts",
    "Federation",
    "Labelling",
    "Scenario",
    "label",
    "label_everything",
]
