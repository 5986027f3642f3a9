"""PyTorch's own exported program (``.pt2``), which needs PyTorch alone: ``torch.export.load(path).module()``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedpu.applications.export.base import ColumnNetwork, Exporter, RawNetwork, example
from fedpu.applications.trained import Probabilities, TrainedModel
from fedpu.data import Encoding
from fedpu.data.encoding import NumberColumn
from fedpu.data.labels import names_of
from fedpu.data.table import Table, is_numbers
from fedpu.record import ModelCard

CARD = "card.json"


class TorchExporter(Exporter):
    """A program of PyTorch. A table's rows are numbers, with the place of each word among those of its column."""

    suffix: ClassVar[str] = ".pt2"

    def write(self, model: TrainedModel, path: Path) -> None:
        """Trace the network for any number of rows, and write it with its card."""
        network: nn.Module = RawNetwork(model)
        inputs = example(model.card)
        if model.card.encoding is not None:
            network = ColumnNetwork(model.card.encoding, network)
            inputs = torch.zeros(2, len(model.card.encoding.columns))
        rows = torch.export.Dim("rows")
        program = torch.export.export(network.eval(), (inputs,), dynamic_shapes=({0: rows},))
        torch.export.save(program, path, extra_files={CARD: json.dumps(model.card.to_dict())})

    def run(self, path: Path, rows: Any) -> Probabilities:
        """Load it with PyTorch."""
        extra = {CARD: ""}
        program = torch.export.load(path, extra_files=extra)
        card = ModelCard.from_dict(json.loads(extra[CARD]))
        inputs = rows.inputs if card.encoding is None else codes(rows, card.encoding)
        with torch.no_grad():
            found: Probabilities = program.module()(inputs).numpy()
        return found


def codes(table: Table, encoding: Encoding) -> Tensor:
    """Return the rows of a table as the exported program takes them."""
    columns = []
    for column in encoding.columns:
        given = table.columns[column.name]
        if isinstance(column, NumberColumn):
            columns.append(given.astype(np.float32))
        else:
            place = {word: number for number, word in enumerate(column.words)}
            words = names_of(given) if is_numbers(given) else given
            columns.append(np.array([place.get(word, -1) for word in words.tolist()], dtype=np.float32))
    return torch.from_numpy(np.stack(columns, axis=1))
