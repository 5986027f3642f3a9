"""Who holds what: labelled and unlabelled examples of every client and class, for people who look at a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedpu.labelling.federation import Federation, HiddenTruth

Counts = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Holdings:
    """Labelled and unlabelled examples of every client and class."""

    labelled: Counts
    unlabelled: Counts
    unknown: Counts
    """unlabelled examples of each client whose class nobody knows, not even evaluation"""
    classes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data; :meth:`from_dict` reads them back."""
        counts = {name: getattr(self, name).tolist() for name in ("labelled", "unlabelled", "unknown")}
        return counts | {"classes": list(self.classes)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Holdings:
        """Read counts back."""
        counts = {name: np.array(values[name], dtype=np.int64) for name in ("labelled", "unlabelled", "unknown")}
        return cls(**counts, classes=tuple(values["classes"]))


def holdings(federation: Federation, hidden: HiddenTruth) -> Holdings:
    """Count what every client holds, with the truth that only evaluation has."""
    clients, classes = len(federation), len(federation.classes)
    flat = federation.owner * classes + hidden.labels.clamp(min=0)

    def count(chosen: torch.Tensor) -> Counts:
        counts: Counts = torch.bincount(flat[chosen], minlength=clients * classes).reshape(clients, classes).numpy()
        return counts

    known = hidden.labels >= 0
    labelled = federation.labels >= 0
    unknown = torch.bincount(federation.owner[~known], minlength=clients).numpy()
    return Holdings(count(labelled), count(known & ~labelled), unknown, federation.classes)
