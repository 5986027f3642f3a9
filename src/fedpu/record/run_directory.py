"""A run directory: open formats only, whole at any moment, enough to resume from.

``config.toml``             the resolved configuration
``partition.npz``           who holds which rows (``rows``, ``offsets``), the labels that were given, positive classes
``clients.json``            in its place where the data stay with clients: their names, and the one sum over them
``rounds.jsonl``            a JSON object a round
``checkpoint.safetensors``  the server's state after the last finished round, and what clients keep between rounds
``model.safetensors``       the final model, with what is needed to use it in its metadata
``result.json``             the outcome
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
from torch import nn

from fedpu.aggregation import ServerState
from fedpu.config import Config
from fedpu.data import Normalisation
from fedpu.engine import ModelState
from fedpu.errors import FedpuError
from fedpu.labelling import UNLABELLED, Evaluation, Federation
from fedpu.partition import Partition
from fedpu.record.files import reading, telling_disk_errors, write_atomically


@dataclass(frozen=True)
class ModelCard:
    """What a saved model needs to be used on new data."""

    shape: tuple[int, ...]
    dtype: str
    """"uint8" or "float32": how inputs are stored, which the normalisation goes with"""
    classes: tuple[str, ...]
    normalisation: Normalisation

    def to_metadata(self) -> dict[str, str]:
        """Return the card as the strings that a safetensors file can carry."""
        return {"card": json.dumps(asdict(self))}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str]) -> ModelCard:
        """Read a card."""
        return cls.from_dict(json.loads(metadata["card"]))

    @classmethod
    def from_dict(cls, card: dict[str, Any]) -> ModelCard:
        """Read a card from plain data."""
        normal = card["normalisation"]
        normalisation = Normalisation(normal["scale"], tuple(normal["mean"]), tuple(normal["std"]))
        return cls(tuple(card["shape"]), card["dtype"], tuple(card["classes"]), normalisation)


@dataclass(frozen=True)
class Members:
    """The clients of a deployment, by number: all that its server keeps of them."""

    names: list[str]
    examples: list[int] | None
    """None where [privacy] hides them"""
    card: ModelCard
    co_negatives: list[list[float]] | None
    """the one sum over clients (:func:`fedpu.risk.co_negatives`), where the method needs it"""


class RunDirectory:
    """Reads and writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.partition_file = path / "partition.npz"
        self.members_file = path / "clients.json"
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
    def create(
        cls, path: Path, config: Config, partition: Partition, federation: Federation, evaluation: Evaluation
    ) -> RunDirectory:
        """Start a run directory, refusing a folder that already holds a run."""
        run = cls._new(path, f"fedpu run --resume {path}")
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            rows=partition.rows,
            offsets=partition.offsets,
            labels=given_labels(federation, evaluation),
            positive=federation.positive.numpy(),
            fingerprint=np.array(fingerprint(federation)),
        )
        write_atomically(run.partition_file, buffer.getvalue())
        run._begin(config)
        return run

    @classmethod
    def create_deployed(cls, path: Path, config: Config, members: Members) -> RunDirectory:
        """Start the run directory of a deployment, whose server does not hold the data."""
        run = cls._new(path, f"fedpu deploy local --resume {path}")
        write_atomically(run.members_file, (json.dumps(asdict(members), indent=2) + "\n").encode())
        run._begin(config)
        return run

    @classmethod
    def _new(cls, path: Path, resume: str) -> RunDirectory:
        run = cls(path)
        if run.config_file.exists():
            raise FedpuError(f"'{path}' already holds a run. Resume it with '{resume}', or choose another --out.")
        with telling_disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        return run

    def _begin(self, config: Config) -> None:
        write_atomically(self.rounds_file, b"")
        write_atomically(self.config_file, config.to_toml().encode())  # last: its presence makes the folder a run

    def config(self) -> Config:
        """Read the resolved configuration."""
        return Config.load(self.config_file)

    def add_round(
        self, line: dict[str, Any], state: ServerState, card: ModelCard, kept: ModelState | None = None
    ) -> None:
        """Append a round's line, then move the checkpoint on. A kill between the two leaves a line that resuming
        drops.
        """
        with telling_disk_errors(self.rounds_file), self.rounds_file.open("a") as file:
            file.write(json.dumps(line) + "\n")
        tensors = {f"model.{name}": value for name, value in state.model.items()}
        tensors |= {f"momentum.{name}": value for name, value in state.momentum.items()}
        tensors |= {f"clients.{name}": value for name, value in (kept or {}).items()}
        if state.co_negatives is not None:
            tensors["co_negatives"] = state.co_negatives
        metadata = card.to_metadata() | {"round": str(state.round)}
        write_atomically(self.checkpoint_file, safetensors.torch.save(tensors, metadata))

    def members(self) -> Members:
        """Read the clients of a deployment."""
        with reading(self.members_file):
            found = json.loads(self.members_file.read_text("utf-8"))
            return Members(**(found | {"card": ModelCard.from_dict(found["card"])}))

    def partition(self) -> Partition:
        """Read who holds which rows."""
        if self.members_file.exists():
            raise FedpuError(
                f"The data of the run in '{self.path}' are with the clients of a deployment: resume it there, with the "
                "run configuration 'resume=true' or with 'fedpu deploy local --resume'."
            )
        return Partition.load(self.partition_file)

    def check_data(self, federation: Federation, evaluation: Evaluation) -> None:
        """Refuse data that are not those the run was started with."""
        with (
            reading(self.partition_file),
            self.partition_file.open("rb") as opened,
            np.load(opened, allow_pickle=False) as file,
        ):
            same = (
                str(file["fingerprint"]) == fingerprint(federation)
                and np.array_equal(file["labels"], given_labels(federation, evaluation))
                and np.array_equal(file["positive"], federation.positive.numpy())
            )
        if not same:
            raise FedpuError(
                f"The data are not those that the run in '{self.path}' was started with, so it can't be resumed with "
                "them. Put the old data back, or start a new run."
            )

    def resume_state(self, network: nn.Module) -> ServerState:
        """Return the state after the last finished round, and cut ``rounds.jsonl`` back to it."""
        start = ServerState.initial(network)
        if not self.checkpoint_file.exists():
            write_atomically(self.rounds_file, b"")
            return start
        with reading(self.checkpoint_file):
            tensors, metadata = _read_tensors(self.checkpoint_file)
            done = int(metadata["round"])
            model = _under("model.", tensors)
        fit(network, model, self.checkpoint_file)
        kept = [line for line in self.rounds() if line["round"] <= done]
        if [line["round"] for line in kept] != list(range(1, done + 1)):
            raise FedpuError(f"'{self.rounds_file}' is damaged: it does not hold the {done} rounds of the checkpoint.")
        write_atomically(self.rounds_file, "".join(json.dumps(line) + "\n" for line in kept).encode())
        return ServerState(done, model, _under("momentum.", tensors), start.buffers, tensors.get("co_negatives"))

    def kept(self) -> ModelState:
        """Return what clients had kept after the last finished round."""
        if not self.checkpoint_file.exists():
            return {}
        with reading(self.checkpoint_file):
            return _under("clients.", _read_tensors(self.checkpoint_file)[0])

    def rounds(self) -> list[dict[str, Any]]:
        """Return the finished rounds; a last line that was cut off by a kill is left out."""
        lines: list[dict[str, Any]] = []
        with reading(self.rounds_file):
            for text in self.rounds_file.read_text("utf-8").splitlines():
                try:
                    line = json.loads(text)
                except json.JSONDecodeError:
                    break
                int(line["round"])
                lines.append(line)
        return lines

    def finish(self, state: ServerState, card: ModelCard, result: dict[str, Any]) -> None:
        """Write the final model and the result."""
        write_atomically(self.model_file, safetensors.torch.save(state.model, card.to_metadata()))
        write_atomically(self.result_file, (json.dumps(result, indent=2) + "\n").encode())

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, or nothing."""
        if not self.result_file.exists():
            return None
        with reading(self.result_file):
            result: dict[str, Any] = json.loads(self.result_file.read_text("utf-8"))
            if result["accuracy"] is not None:  # nobody measured it
                float(result["accuracy"])
        return result

    def model(self) -> tuple[ModelState, ModelCard]:
        """Return the final model of a finished run, or else that of its last finished round."""
        for path, prefix in ((self.model_file, ""), (self.checkpoint_file, "model.")):
            if path.exists():
                with reading(path):
                    tensors, metadata = _read_tensors(path)
                    return _under(prefix, tensors), ModelCard.from_metadata(metadata)
        raise FedpuError(f"The run in '{self.path}' has not finished a round yet: it has no model.")


def fit(network: nn.Module, model: ModelState, path: Path) -> None:
    """Put saved parameters into a network, or say that they are another network's."""
    try:
        network.load_state_dict(model)
    except RuntimeError as error:
        raise FedpuError(f"'{path}' does not fit the network of config.toml: one of them was changed.") from error


def given_labels(federation: Federation, evaluation: Evaluation) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the label that was given to each example of the data set, −1 where none was."""
    given = np.full(len(federation.inputs), UNLABELLED)
    labelled = federation.labels >= 0
    given[evaluation.examples[federation.rows[labelled]].numpy()] = federation.labels[labelled].numpy()
    return given


def fingerprint(federation: Federation) -> str:
    """Return a checksum of the examples, in the order of the clients."""
    return hashlib.sha256(federation.inputs.numpy().data).hexdigest()


def _read_tensors(path: Path) -> tuple[ModelState, dict[str, str]]:
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def _under(prefix: str, tensors: ModelState) -> ModelState:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
