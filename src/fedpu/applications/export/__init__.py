"""A trained model for other programs: raw inputs in, probabilities out, checked against our own on the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedpu.applications.export.base import Exporter
from fedpu.applications.export.onnx_file import OnnxExporter
from fedpu.applications.export.safetensors_file import SafetensorsExporter
from fedpu.applications.export.sample import sample
from fedpu.applications.export.torch_program import TorchExporter
from fedpu.applications.trained import Probabilities, TrainedModel
from fedpu.errors import ConfigError, FedpuError
from fedpu.registry import Registry

EXPORTERS: Registry[type[Exporter]] = Registry(
    "export format", {"onnx": OnnxExporter, "torch": TorchExporter, "safetensors": SafetensorsExporter}
)
TOLERANCE = 1e-5
"""how far a probability of an exported model may be from ours"""
ROWS = 64


def export(model: TrainedModel, path: Path, form: str) -> float:
    """Write a model to a file, read it back, and return how far its probabilities are from ours, at most.

    They are compared on rows drawn at random, with missing values and unknown words where the inputs are a table. A
    file that does not do the same is not kept.
    """
    if path.exists():
        raise ConfigError(f"'{path}' exists. Choose another --out, or remove it.")
    if not path.parent.is_dir():
        raise ConfigError(f"There is no folder '{path.parent}' to write '{path.name}' to.")
    exporter = EXPORTERS[form]()
    if path.suffix != exporter.suffix:
        raise ConfigError(f"'{path}' must end in {exporter.suffix}: that is how programs know the format '{form}'.")
    rows = sample(model.card, ROWS, model.settings.largest_token())
    ours = model.probabilities(model.read(rows) if not hasattr(rows, "inputs") else rows)
    exporter.write(model, path)
    theirs: Probabilities = exporter.run(path, rows)
    far = float(np.abs(theirs - ours).max())
    if not far <= TOLERANCE:
        path.unlink()
        raise FedpuError(f"The exported model differs from the trained one by {far:.2g}: it was not kept.")
    return far


__all__ = ["EXPORTERS", "TOLERANCE", "Exporter", "export"]
