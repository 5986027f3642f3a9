"""A trained model with all that it needs to be used: raw inputs in, probabilities of named classes out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from fedpu.config.sections import SECTIONS
from fedpu.data import Inputs, dtype_name, read_inputs
from fedpu.engine import LocalEngine
from fedpu.engine import predict as outputs_of
from fedpu.errors import DataError, FedpuError
from fedpu.models import Model
from fedpu.record import ModelCard, RunDirectory, fit, reading

Names = np.ndarray[Any, np.dtype[Any]]
Probabilities = np.ndarray[Any, np.dtype[np.float32]]

SETTINGS = "model"
"""key of a file's metadata: the table ``[model]``, from which the network is built"""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A network, and the card that says what goes in and what comes out."""

    network: nn.Module
    card: ModelCard
    settings: Model
    device: torch.device

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the probabilities."""
        return self.card.classes

    def predict(self, x: Any) -> Names:
        """Return the name of the most probable class of each example.

        ``x`` are raw inputs in any form that data come in: a path, a DataFrame, a sparse matrix, a dataset or arrays.
        """
        found: Names = np.array(self.classes)[self.predict_proba(x).argmax(axis=1)]
        return found

    def predict_proba(self, x: Any) -> Probabilities:
        """Return the probability of every class, one row per example."""
        return self.probabilities(self.read(x))

    def probabilities(self, new: Inputs) -> Probabilities:
        """Return the probabilities of inputs that were read already."""
        logits = self.logits(new.inputs)
        wrong = torch.nonzero(~torch.isfinite(logits).all(dim=1))[:, 0]
        if len(wrong):
            raise FedpuError(
                f"The output of the model for '{new.names[int(wrong[0])]}' is NaN or infinite: it is no prediction."
            )
        found: Probabilities = logits.softmax(dim=1).numpy()
        return found

    def logits(self, inputs: Num[Tensor, "n *shape"]) -> Float[Tensor, "n C"]:
        """Return the network's outputs on inputs as they are stored."""
        check_inputs(inputs, self.card)
        if self.card.tokens:
            largest = self.settings.largest_token()
            if largest is not None and int(inputs.max()) > largest:
                given = int(inputs.max())
                raise DataError(f"The inputs have the token id {given}; the model knows ids up to {largest}.")
        return outputs_of(self.network, inputs, self.card.normalisation, self.device)

    def read(self, x: Any) -> Inputs:
        """Return raw inputs as the model's are stored, with what each row is called."""
        shape, image = self.card.shape, len(self.card.shape) == 3
        new = read_inputs(
            x,
            (shape[1], shape[2]) if image else None,
            shape[0] if image else None,
            encoding=self.card.encoding,
            tokens=shape[0] if self.card.tokens else None,
        )
        if self.card.dtype == "uint8" and new.inputs.dtype == torch.float32 and not isinstance(x, str | Path):
            new = Inputs(_as_bytes(new.inputs, x), new.names)
        return new


def _as_bytes(inputs: Float[Tensor, "n *shape"], given: Any) -> Tensor:
    """Return whole numbers from 0 to 255, which Python hands over in wider types, as bytes; leave others alone."""
    dtype = str(getattr(given, "dtype", "int64"))
    whole = "int" in dtype and float(inputs.min()) >= 0 and float(inputs.max()) <= 255
    return inputs.to(torch.uint8) if whole else inputs


def check_inputs(inputs: Num[Tensor, "n *shape"], card: ModelCard) -> None:
    """Refuse inputs that are not such as the model was trained on."""
    shape, dtype = tuple(inputs.shape[1:]), dtype_name(inputs)
    if shape != card.shape:
        given, wanted = "×".join(map(str, shape)), "×".join(map(str, card.shape))
        raise DataError(f"These inputs are {given}; the model was trained on {wanted}.")
    if dtype != card.dtype:
        raise DataError(f"These inputs are {dtype}; the model was trained on {card.dtype}, scaled in another way.")


def load_model(path: str | Path) -> TrainedModel:
    """Return the model of a run directory, or of a ``.safetensors`` file that ``fedpu export`` wrote."""
    path = Path(path).expanduser()
    if path.is_file():
        return _load_file(path)
    directory = RunDirectory.open(path)
    config = directory.config()
    state, card = directory.model()
    network = config.model.build(card.shape, len(card.classes))
    fit(network, state, directory.path)
    return TrainedModel(network.eval(), card, config.model, config.engine.compute_device())


def _load_file(path: Path) -> TrainedModel:
    with reading(path), safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        if SETTINGS not in metadata:
            raise FedpuError(
                f"'{path}' does not say how its network is built. Give the run directory, or write a file with 'fedpu "
                "export RUN --format safetensors'."
            )
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        card = ModelCard.from_metadata(metadata)
        settings = SECTIONS["model"].parse(json.loads(metadata[SETTINGS]))
    assert isinstance(settings, Model)
    network = settings.build(card.shape, len(card.classes))
    fit(network, state, path)
    return TrainedModel(network.eval(), card, settings, LocalEngine().compute_device())
