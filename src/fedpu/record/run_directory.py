"""A run directory: open formats only, whole at any moment, enough to resume from.

``config.toml``             the resolved configuration
``partition.npz``           who holds which rows (``rows``, ``offsets``), which labels were given, positive classes
``rounds.jsonl``            a JSON object a round
``checkpoint.safetensors``  the server's state after the last finished round
``model.safetensors``       the final model, with what is needed to use it in its metadata
``result.json``             the outcome
"""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
from safetensors import SafetensorError
from torch import nn

from fedpu.aggregation import ServerState
from fedpu.config import Config
from fedpu.data import Normalisation
from fedpu.engine import ModelState
from fedpu.errors import FedpuError
from fedpu.labelling import Federation
from fedpu.partition import Partition
from fedpu.record.files import telling_disk_errors, write_atomically


@dataclass(frozen=True)
class ModelCard:
    """What a saved model needs to be used on new data."""

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    normalisation: Normalisation

    def to_metadata(self) -> dict[str, str]:
        """Return the card as the strings that a safetensors file can carry."""
        return {"card": json.dumps(asdict(self))}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str]) -> ModelCard:
        """Read a card."""
        card = json.loads(metadata["card"])
        normal = card["normalisation"]
        normalisation = Normalisation(normal["scale"], tuple(normal["mean"]), tuple(normal["std"]))
        return cls(tuple(card["shape"]), tuple(card["classes"]), normalisation)


class RunDirectory:
    """Reads and writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.partition_file = path / "partition.npz"
        self.rounds_file = path / "rounds.jsonl"
        self.checkpoint_file = path / "checkpoint.safetensors"
        self.model_file = path / "model.safetensors"
        self.result_file = path / "result.json"

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open a run that exists."""
        run = cls(path)
        if not run.config_file.is_file():
            raise FedpuError(
                f"'{path}' is not a run directory: it has no config.toml. 'fedpu run --out {path}' makes one."
            )
        return run

    @classmethod
    def create(cls, path: Path, config: Config, partition: Partition, federation: Federation) -> RunDirectory:
        """Start a run directory, refusing a folder that already holds a run."""
        run = cls(path)
        if run.config_file.exists():
            raise FedpuError(
                f"'{path}' already holds a run. Resume it with 'fedpu run --resume {path}', or choose another --out."
            )
        with telling_disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            rows=partition.rows,
            offsets=partition.offsets,
            federation_rows=federation.rows.numpy(),
            federation_offsets=federation.offsets.numpy(),
            labels=federation.labels.numpy(),
            positive=federation.positive.numpy(),
        )
        write_atomically(run.partition_file, buffer.getvalue())
        write_atomically(run.rounds_file, b"")
        write_atomically(run.config_file, config.to_toml().encode())  # last: its presence makes the folder a run
        return run

    def config(self) -> Config:
        """Read the resolved configuration."""
        return Config.load(self.config_file)

    def add_round(self, line: dict[str, Any], state: ServerState, card: ModelCard) -> None:
        """Append a round's line, then move the checkpoint on. A kill between the two leaves a line that resuming
        drops.
        """
        with telling_disk_errors(self.rounds_file), self.rounds_file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        tensors = {f"model.{name}": value for name, value in state.model.items()}
        tensors |= {f"momentum.{name}": value for name, value in state.momentum.items()}
        metadata = card.to_metadata() | {"round": str(state.round)}
        write_atomically(self.checkpoint_file, safetensors.torch.save(tensors, metadata))

    def resume_state(self, network: nn.Module) -> ServerState:
        """Return the state after the last finished round, and cut ``rounds.jsonl`` back to it."""
        start = ServerState.initial(network)
        if not self.checkpoint_file.exists():
            write_atomically(self.rounds_file, b"")
            return start
        tensors, metadata = _read_tensors(self.checkpoint_file)
        done = int(metadata["round"])
        kept = "".join(json.dumps(line) + "\n" for line in self.rounds() if line["round"] <= done)
        write_atomically(self.rounds_file, kept.encode())
        return ServerState(done, _under("model.", tensors), _under("momentum.", tensors), start.buffers)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the finished rounds; a last line that was cut off by a kill is left out."""
        lines: list[dict[str, Any]] = []
        for text in self.rounds_file.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                break
        return lines

    def finish(self, state: ServerState, card: ModelCard, result: dict[str, Any]) -> None:
        """Write the final model and the result."""
        write_atomically(self.model_file, safetensors.torch.save(state.model, card.to_metadata()))
        write_atomically(self.result_file, (json.dumps(result, indent=2) + "\n").encode())

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, or nothing."""
        if not self.result_file.exists():
            return None
        result: dict[str, Any] = json.loads(self.result_file.read_text())
        return result

    def model(self) -> tuple[ModelState, ModelCard]:
        """Return the final model of a finished run, or else that of its last finished round."""
        if self.model_file.exists():
            tensors, metadata = _read_tensors(self.model_file)
            return tensors, ModelCard.from_metadata(metadata)
        if self.checkpoint_file.exists():
            tensors, metadata = _read_tensors(self.checkpoint_file)
            return _under("model.", tensors), ModelCard.from_metadata(metadata)
        raise FedpuError(f"The run in '{self.path}' has not finished a round yet: it has no model.")


def _read_tensors(path: Path) -> tuple[ModelState, dict[str, str]]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FedpuError(f"'{path}' is damaged or not a safetensors file ({error}).") from error


def _under(prefix: str, tensors: ModelState) -> ModelState:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
