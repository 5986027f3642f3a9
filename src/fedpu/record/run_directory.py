"""A run directory: open formats only, whole at any moment, enough to resume from.

``config.toml``             the resolved configuration
``partition.npz``           who holds which rows (``rows``, ``offsets``), the labels that were given, positive classes
``clients.json``            in its place where the data stay with clients: their names, and the one sum over them
``rounds.jsonl``            a JSON object a round
``checkpoint.safetensors``  the server's state after the last finished round, and what clients keep between rounds
``model.safetensors``       the final model, with what is needed to use it in its metadata
``result.json``             the outcome
``manifest.json``           the checksums of all of these, and of the checkpoint before, which is kept until the end
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import nn

from fedpu.aggregation import ServerState
from fedpu.config import Config
from fedpu.data import Dataset, Encoding, Normalisation, dtype_name
from fedpu.engine import ClientStates
from fedpu.errors import FedpuError, TrainingError
from fedpu.labelling import UNLABELLED, Federation, HiddenTruth
from fedpu.partition import Partition
from fedpu.record.files import reading, telling_disk_errors, write_atomically
from fedpu.record.lock import PATIENCE, locked
from fedpu.record.manifest import NAME as MANIFEST
from fedpu.record.manifest import PREVIOUS, Checkpoint, Manifest, Sum, checked, current
from fedpu.record.releases import Releases
from fedpu.round import Tensors, prefixed, under
from fedpu.valid_json import json_text

UNDEFINED = ("loss", "validation", "validation_as_trained")
"""numbers of a round that may be NaN or infinite, which ``rounds.jsonl`` has as null"""


@dataclass(frozen=True)
class ModelCard:
    """What a saved model needs to be used on new data."""

    shape: tuple[int, ...]
    dtype: str
    """"uint8" or "float32": how inputs are stored, which the normalisation goes with; "int64": token ids"""
    classes: tuple[str, ...]
    normalisation: Normalisation
    encoding: Encoding | None = None
    """how the columns of a table become inputs"""

    @classmethod
    def of(cls, data: Dataset) -> ModelCard:
        """Return the card of a model that is trained on a data set."""
        return cls(data.shape, dtype_name(data.inputs), data.classes, data.normalisation, data.encoding)

    @property
    def tokens(self) -> bool:
        """Are its inputs token ids?"""
        return self.dtype == "int64"

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain data."""
        plain = asdict(replace(self, encoding=None))
        plain.pop("encoding")
        return plain if self.encoding is None else plain | {"encoding": self.encoding.to_dict()}

    def to_metadata(self) -> dict[str, str]:
        """Return the card as the strings that a safetensors file can carry."""
        return {"card": json.dumps(self.to_dict())}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str]) -> ModelCard:
        """Read a card."""
        return cls.from_dict(json.loads(metadata["card"]))

    @classmethod
    def from_dict(cls, card: dict[str, Any]) -> ModelCard:
        """Read a card from plain data (ValueError: it is none)."""
        normal = card["normalisation"]
        shape, classes = tuple(card["shape"]), tuple(card["classes"])
        mean, std = tuple(normal["mean"]), tuple(normal["std"])
        fine = (
            shape
            and all(type(size) is int and size > 0 for size in shape)
            and card["dtype"] in ("uint8", "float32", "int64")
            and classes
            and all(isinstance(name, str) for name in classes)
            and len(mean) == len(std) == (0 if card["dtype"] == "int64" else shape[0])
            and all(math.isfinite(value) for value in (normal["scale"], *mean, *std))
            and all(value > 0 for value in std)
        )
        if not fine:
            raise ValueError("its card does not say what the inputs and classes of the model are")
        encoding = None if card.get("encoding") is None else Encoding.from_dict(card["encoding"])
        if encoding is not None and (encoding.width,) != shape:
            raise ValueError("its card has other columns than inputs")
        return cls(shape, card["dtype"], classes, Normalisation(normal["scale"], mean, std), encoding)


@dataclass(frozen=True)
class Members:
    """The clients of a deployment, by number: all that its server keeps of them."""

    names: list[str]
    examples: list[int] | None
    """None where [privacy] hides them"""
    card: ModelCard
    co_negatives: list[list[float]] | None
    """the one sum over clients (:func:`fedpu.risk.co_negatives`), where the method needs it"""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    """what clients call the run by"""
    left_out: dict[str, str] = field(default_factory=dict)
    """who joined and takes no part, and why"""


class RunDirectory:
    """Reads and writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.partition_file = path / "partition.npz"
        self.members_file = path / "clients.json"
        self.releases = Releases(path / "releases.jsonl")
        self.rounds_file = path / "rounds.jsonl"
        self.checkpoint_file = path / "checkpoint.safetensors"
        self.previous_file = path / PREVIOUS
        self.model_file = path / "model.safetensors"
        self.result_file = path / "result.json"
        self._manifest = Manifest()
        self._current: Checkpoint | None = None
        self._rounds_digest, self._rounds_bytes = hashlib.sha256(), 0

    @classmethod
    def open(cls, path: Path, check: bool = True) -> RunDirectory:
        """Open a run that exists, and unless it is locked right afterwards, check that its files are whole."""
        run = cls(path)
        if not run.config_file.is_file():
            raise FedpuError(
                f"'{path}' is not a run directory: it has no config.toml. 'fedpu run --out {path}' makes one."
            )
        if check:
            checked(path)
        return run

    @contextmanager
    def locked(self, patience: float = PATIENCE) -> Iterator[RunDirectory]:
        """Keep everybody else from writing, once it is sure that all files are whole.

        Whoever holds it may take some seconds to end.
        """
        refusal = f"Another process is at work on the run in '{self.path}': wait until it has ended, or stop it."
        with locked(self.path / ".lock", refusal, patience):
            checked(self.path)
            yield self

    @classmethod
    def create(
        cls, path: Path, config: Config, partition: Partition, federation: Federation, hidden: HiddenTruth
    ) -> RunDirectory:
        """Start a run directory, refusing a folder that already holds a run."""
        run = cls._new(path, f"fedpu run --resume {path}")
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            rows=partition.rows,
            offsets=partition.offsets,
            labels=given_labels(federation, hidden),
            positive=federation.positive.numpy(),
            fingerprint=np.array(fingerprint(federation)),
        )
        run._put(run.partition_file, buffer.getvalue())
        run._begin(config)
        return run

    @classmethod
    def create_deployed(cls, path: Path, config: Config, members: Members) -> RunDirectory:
        """Start the run directory of a deployment, whose server does not hold the data."""
        run = cls._new(path, f"fedpu deploy local --resume {path}")
        plain = {name: getattr(members, name) for name in Members.__dataclass_fields__}
        content = json_text(plain | {"card": members.card.to_dict()}, indent=2)
        run._put(run.members_file, content.encode())
        run._begin(config)
        return run

    @classmethod
    def _new(cls, path: Path, resume: str) -> RunDirectory:
        cls.refuse_taken(path, resume)
        with telling_disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @classmethod
    def refuse_taken(cls, path: Path, resume: str | None = None) -> None:
        """Refuse a folder that already holds a run."""
        resume = resume or f"fedpu run --resume {path}"
        if cls(path).config_file.exists():
            raise FedpuError(f"'{path}' already holds a run. Resume it with '{resume}', or choose another --out.")

    def _begin(self, config: Config) -> None:
        write_atomically(self.rounds_file, b"")
        content = config.to_toml().encode()
        self._manifest = self._manifest.with_file(self.config_file.name, content)
        self._manifest.write(self.path)
        write_atomically(self.config_file, content)  # last: its presence makes the folder a run

    def discard(self) -> None:
        """Take back a run that failed before its first round was finished, so that its folder is free again."""
        if self.checkpoint_file.exists():
            return
        others = (self.path / MANIFEST, self.path / ".lock")
        for path in (self.config_file, self.partition_file, self.rounds_file, *others):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds files of somebody else
            self.path.rmdir()

    def _put(self, path: Path, content: bytes) -> None:
        """Write a file, and have it in the next manifest."""
        write_atomically(path, content)
        self._manifest = self._manifest.with_file(path.name, content)

    def config(self) -> Config:
        """Read the resolved configuration."""
        return Config.load(self.config_file)

    def add_round(self, line: dict[str, Any], state: ServerState, card: ModelCard, states: ClientStates) -> None:
        """Append a round's line, then move the checkpoint on. A kill between the two leaves a line that resuming
        drops. A state that is not finite is refused: the checkpoint before it stays.
        """
        groups = {
            "model": state.model,
            "server": state.extras,
            "shared": state.shared,
            "memory": state.memory,
            "once": state.once,
        }
        wrong = not_finite(prefixed(groups))
        if wrong is not None:
            raise TrainingError(
                f"After round {state.round} '{wrong}' holds values that are NaN or infinite. The run in '{self.path}' "
                f"is kept as it was after round {state.round - 1}. Lower aggregation.lr, or with clients on nodes set "
                "engine.max_norm."
            )
        tensors = prefixed(groups | {"clients": states.to_tensors()})
        metadata = card.to_metadata() | {"round": str(state.round)}
        own = {name: value.clone() for name, value in tensors.items()}
        content, text = safetensors.torch.save(own, metadata), json_text(line).encode()
        with telling_disk_errors(self.rounds_file), self.rounds_file.open("ab") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._count_rounds(text)
        rounds = Sum(self._rounds_bytes, self._rounds_digest.hexdigest())
        coming = Checkpoint(state.round, Sum.of(content), rounds)
        with telling_disk_errors(self.previous_file):
            self._keep_previous()
        self._manifest = replace(self._manifest, checkpoints=tuple(filter(None, (self._current, coming))))
        self._manifest.write(self.path)
        write_atomically(self.checkpoint_file, content)
        self._current = coming

    def _count_rounds(self, text: bytes) -> None:
        self._rounds_digest.update(text)
        self._rounds_bytes += len(text)

    def _keep_previous(self) -> None:
        """Give the checkpoint that is there a second name, under which it stays when the next one takes the first."""
        if self._current is None:
            return
        temporary = self.previous_file.with_name(f".{self.previous_file.name}.tmp")
        temporary.unlink(missing_ok=True)
        try:
            os.link(self.checkpoint_file, temporary)
        except OSError:  # a file system without links
            shutil.copyfile(self.checkpoint_file, temporary)
        temporary.replace(self.previous_file)

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

    def check_data(self, federation: Federation, hidden: HiddenTruth) -> None:
        """Refuse data that are not those the run was started with."""
        with (
            reading(self.partition_file),
            self.partition_file.open("rb") as opened,
            np.load(opened, allow_pickle=False) as file,
        ):
            same = (
                str(file["fingerprint"]) == fingerprint(federation)
                and np.array_equal(file["labels"], given_labels(federation, hidden))
                and np.array_equal(file["positive"], federation.positive.numpy())
            )
        if not same:
            raise FedpuError(
                f"The data are not those that the run in '{self.path}' was started with, so it can't be resumed with "
                "them. Put the old data back, or start a new run."
            )

    def resume_state(self, start: ServerState, network: nn.Module) -> ServerState:
        """Return the state after the last finished round, and cut ``rounds.jsonl`` back to it.

        ``start`` is the state before the first round.
        """
        self._read_manifest()
        if not self.checkpoint_file.exists():
            self._write_rounds(b"")
            return start
        with reading(self.checkpoint_file):
            tensors, metadata = _read_tensors(self.checkpoint_file)
            done = int(metadata["round"])
        state = replace(
            start,
            round=done,
            model=under("model", tensors),
            extras=under("server", tensors),
            shared=under("shared", tensors),
            memory=under("memory", tensors),
            once=under("once", tensors),
        )
        fit(network, state.model, self.checkpoint_file)
        self._refuse_unlike(start, state)
        kept = [line for line in self.rounds() if line["round"] <= done]
        if [line["round"] for line in kept] != list(range(1, done + 1)):
            raise FedpuError(f"'{self.rounds_file}' is damaged: it does not hold the {done} rounds of the checkpoint.")
        self._write_rounds("".join(map(json_text, kept)).encode())
        if self._current is None:  # a run without a manifest, which gets one here
            rounds = Sum(self._rounds_bytes, self._rounds_digest.hexdigest())
            self._current = Checkpoint(done, Sum.of_file(self.checkpoint_file), rounds)
        return state

    def _read_manifest(self) -> None:
        """Go on with the manifest that is there, or make one of the files that are."""
        found = Manifest.read(self.path)
        if found is not None:
            self._manifest, self._current = found, current(self.path, found)
            return
        for path in (self.config_file, self.partition_file, self.members_file):
            if path.exists():
                self._manifest = self._manifest.with_file(path.name, path.read_bytes())

    def _write_rounds(self, content: bytes) -> None:
        """Cut ``rounds.jsonl`` back to the lines that count."""
        write_atomically(self.rounds_file, content)
        self._rounds_digest, self._rounds_bytes = hashlib.sha256(content), len(content)

    def _refuse_unlike(self, start: ServerState, found: ServerState) -> None:
        """Refuse a checkpoint whose tensors besides the model are not those of this run."""
        groups = {"server": found.extras, "shared": found.shared, "memory": found.memory, "once": found.once}
        wrong = not_finite(prefixed(groups))
        for group, wanted, given in (
            ("server", start.extras, found.extras),
            ("shared", start.shared, found.shared),
            ("once", start.once, found.once),
        ):
            for name, value in wanted.items():
                own = given.get(name)
                if own is None or (own.shape, own.dtype) != (value.shape, value.dtype):
                    wrong = wrong or f"{group}.{name}"
        if wrong is not None:
            raise FedpuError(
                f"'{self.checkpoint_file}' is damaged: '{wrong}' is not what a run of config.toml keeps between "
                f"rounds. {self._instead()}"
            )

    def _instead(self) -> str:
        if self.previous_file.exists():
            return f"'{self.previous_file}' is the checkpoint before it."
        return "Restore it from a copy, or start a new run."

    def client_states(self) -> ClientStates:
        """Return what stayed with clients after the last finished round."""
        if not self.checkpoint_file.exists():
            return ClientStates()
        with reading(self.checkpoint_file):
            return ClientStates.from_tensors(under("clients", _read_tensors(self.checkpoint_file)[0]))

    def rounds(self) -> list[dict[str, Any]]:
        """Return the finished rounds; a last line that was cut off by a kill is left out."""
        lines: list[dict[str, Any]] = []
        with reading(self.rounds_file):
            for text in self.rounds_file.read_text("utf-8").splitlines():
                try:
                    line = json.loads(text)
                except json.JSONDecodeError:
                    break
                _check_line(line)
                lines.append(_with_nan(line))
        return lines

    def finish(self, state: ServerState, card: ModelCard, result: dict[str, Any]) -> None:
        """Write the final model and the result; the checkpoint before the last is not needed any more."""
        model = safetensors.torch.save(state.model, card.to_metadata())
        outcome = json_text(result, indent=2).encode()
        self.previous_file.unlink(missing_ok=True)
        last = () if self._current is None else (self._current,)
        self._manifest = (
            replace(self._manifest, checkpoints=last)
            .with_file(self.model_file.name, model)
            .with_file(self.result_file.name, outcome)
        )
        self._manifest.write(self.path)
        write_atomically(self.model_file, model)
        write_atomically(self.result_file, outcome)

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run, or nothing."""
        if not self.result_file.exists():
            return None
        with reading(self.result_file):
            result: dict[str, Any] = json.loads(self.result_file.read_text("utf-8"))
            if result["accuracy"] is not None:  # nobody measured it
                float(result["accuracy"])
        return result

    def model(self) -> tuple[Tensors, ModelCard]:
        """Return the final model of a finished run, or else that of its last finished round."""
        for path in (self.model_file, self.checkpoint_file):
            if path.exists():
                with reading(path):
                    tensors, metadata = _read_tensors(path)
                    model = tensors if path == self.model_file else under("model", tensors)
                    card = ModelCard.from_metadata(metadata)
                wrong = not_finite(model)
                if wrong is not None:
                    raise FedpuError(f"'{path}' can't be used: '{wrong}' holds values that are NaN or infinite.")
                return model, card
        raise FedpuError(f"The run in '{self.path}' has not finished a round yet: it has no model.")


def fit(network: nn.Module, model: Tensors, path: Path) -> None:
    """Put saved parameters into a network, or say that they are another network's, or no numbers."""
    wanted = network.state_dict()
    same = wanted.keys() == model.keys() and all(
        (model[name].shape, model[name].dtype) == (value.shape, value.dtype) for name, value in wanted.items()
    )
    if not same:
        raise FedpuError(f"'{path}' does not fit the network of config.toml: one of them was changed.")
    wrong = not_finite(model)
    if wrong is not None:
        raise FedpuError(f"'{path}' can't be used: '{wrong}' holds values that are NaN or infinite.")
    network.load_state_dict(model)


def not_finite(tensors: Tensors) -> str | None:
    """Return the name of the first tensor that holds NaN or an infinite number; nothing, where none does."""
    return next((name for name, value in tensors.items() if not bool(torch.isfinite(value).all())), None)


def _check_line(line: dict[str, Any]) -> None:
    """Refuse a line of ``rounds.jsonl`` that can't be gone on with (ValueError)."""
    if type(line["round"]) is not int:
        raise ValueError(f"a round is numbered {line['round']!r}")
    seconds = line.get("seconds", 0.0)
    if type(seconds) not in (int, float) or not math.isfinite(seconds):
        raise ValueError(f"round {line['round']} took {seconds!r} seconds")
    for name in ("accuracy", *UNDEFINED):
        undefined = name in UNDEFINED and line.get(name, 0.0) is None
        if not undefined and type(line.get(name, 0.0)) not in (int, float):
            raise ValueError(f"'{name}' of round {line['round']} is {line[name]!r}")


def _with_nan(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line with NaN where null stands for it, as the run had it: a run that is resumed goes on the same."""
    found = {name: math.nan if value is None and name in UNDEFINED else value for name, value in line.items()}
    for table in ("risk", "validation_set"):
        if isinstance(line.get(table), dict):
            found[table] = {name: math.nan if value is None else value for name, value in line[table].items()}
    return found


def given_labels(federation: Federation, hidden: HiddenTruth) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the label that was given to each example of the data set, −1 where none was."""
    given = np.full(len(federation.inputs), UNLABELLED)
    labelled = federation.labels >= 0
    given[hidden.examples[federation.rows[labelled]].numpy()] = federation.labels[labelled].numpy()
    return given


def fingerprint(federation: Federation) -> str:
    """Return a checksum of the examples, in the order of the clients."""
    return hashlib.sha256(federation.inputs.numpy().data).hexdigest()


def _read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
