"""safetensors: the parameters, and how the network is built and used; ``fedpu.load_model`` reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import safetensors.torch

from fedpu.applications.export.base import Exporter
from fedpu.applications.trained import SETTINGS, Probabilities, TrainedModel, load_model
from fedpu.config.sections import SECTIONS
from fedpu.record import write_atomically


class SafetensorsExporter(Exporter):
    """One file for people who have fedpu, or who want the parameters."""

    suffix: ClassVar[str] = ".safetensors"

    def write(self, model: TrainedModel, path: Path) -> None:
        """Write parameters, card and settings."""
        settings = json.dumps(SECTIONS["model"].dump(model.settings))
        state = {name: value.cpu().contiguous() for name, value in model.network.state_dict().items()}
        write_atomically(path, safetensors.torch.save(state, model.card.to_metadata() | {SETTINGS: settings}))

    def run(self, path: Path, rows: Any) -> Probabilities:
        """Load it without the run that it is of."""
        model = load_model(path)
        return model.probabilities(rows if hasattr(rows, "inputs") else model.read(rows))
