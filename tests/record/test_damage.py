"""Damage, two writers, and models that are no numbers: nothing of it goes unseen, and all of it ends in a sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

from fedpu.applications.experiment import resume, run
from fedpu.cli.app import app
from fedpu.config import Config
from fedpu.errors import FedpuError, FedpuWarning, TrainingError
from fedpu.record import RunDirectory
from fedpu.record.run_directory import _read_tensors

FINISHED = {"config.toml", "partition.npz", "rounds.jsonl", "checkpoint.safetensors", "manifest.json"}
FINISHED |= {"model.safetensors", "result.json"}
STOPPED = (FINISHED | {"checkpoint.previous.safetensors"}) - {"model.safetensors", "result.json"}


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def runs(tiny_config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is finished, and one that was stopped after two of three rounds."""
    folder = tmp_path_factory.mktemp("runs")

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise Stop

    run(tiny_config, out=folder / "finished")
    with pytest.raises(Stop):
        run(tiny_config, out=folder / "stopped", on_round=stop)
    return folder


@pytest.fixture
def stopped(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "stopped", tmp_path / "r"))


@pytest.fixture
def finished(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "finished", tmp_path / "r"))


def fedpu(*arguments: str) -> str:
    """Run a command that must fail; return its sentence."""
    with pytest.raises(FedpuError) as told:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return str(told.value)


@pytest.mark.parametrize(("kind", "files"), [("finished", FINISHED), ("stopped", STOPPED)])
def test_no_damage_of_any_file_goes_unseen(runs: Path, tmp_path: Path, kind: str, files: set[str]) -> None:
    folder = Path(shutil.copytree(runs / kind, tmp_path / "r"))
    assert {path.name for path in folder.iterdir()} - {".lock"} == files
    rng = np.random.default_rng(0)
    for name in sorted(files):
        path = folder / name
        whole = path.read_bytes()
        damages = [whole[: rng.integers(len(whole))] for _ in range(15)]
        for _ in range(40):
            changed = bytearray(whole)
            changed[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            damages.append(bytes(changed))
        for content in (*damages, whole[:-1], b"", whole + b"x"):
            if kind == "stopped" and name == "rounds.jsonl" and content.startswith(whole):
                continue  # as a kill in the next round leaves it: dropped when the run goes on
            path.write_bytes(content)
            with pytest.raises(FedpuError, match=name.replace(".", r"\.")):
                RunDirectory.open(folder)
        path.write_bytes(whole)
        RunDirectory.open(folder)


def test_pictures_and_reports_beside_a_run_are_not_watched(finished: Path) -> None:
    (finished / "report.html").write_text("<html>")
    RunDirectory.open(finished)


@pytest.mark.parametrize("command", [["run", "--resume"], ["evaluate"], ["predict"]], ids=lambda words: words[0])
def test_every_command_that_reads_a_run_checks_it(finished: Path, command: list[str]) -> None:
    model = finished / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)
    more = ["x.npy"] if command == ["predict"] else []
    assert "model.safetensors' is damaged" in fedpu(*command, str(finished), *more)


def test_a_damaged_checkpoint_names_the_one_before_which_leads_to_the_same_bits(
    stopped: Path, tiny_config: Config
) -> None:
    (stopped / "checkpoint.safetensors").write_bytes(b"damaged")
    with pytest.raises(FedpuError, match=r"That of round 1 is whole: copy '.*checkpoint\.previous\.safetensors' over"):
        resume(stopped)
    shutil.copy(stopped / "checkpoint.previous.safetensors", stopped / "checkpoint.safetensors")
    resumed, expected = resume(stopped), run(tiny_config)
    assert [line["round"] for line in resumed.curve] == [1, 2, 3]
    for name, value in expected.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)


def test_what_the_advice_says_works(finished: Path) -> None:
    (finished / "model.safetensors").write_bytes(b"")
    with pytest.raises(FedpuError, match=r"Remove it together with result\.json"):
        resume(finished)
    (finished / "model.safetensors").unlink()
    (finished / "result.json").unlink()
    resume(finished)
    RunDirectory.open(finished).model()


def test_a_run_without_a_manifest_is_read_and_gets_one(stopped: Path) -> None:
    (stopped / "manifest.json").unlink()
    with pytest.warns(FedpuWarning, match=r"has no manifest\.json.*read unchecked") as told:
        resume(stopped)
    assert len(told) == 1
    RunDirectory.open(stopped)


def test_two_processes_do_not_go_on_with_one_run(stopped: Path) -> None:
    with (
        RunDirectory.open(stopped).locked(),
        pytest.raises(FedpuError, match=r"Another process is at work on the run in .*: wait until it has ended"),
    ):
        resume(stopped)
    resume(stopped)


def test_a_state_that_is_not_finite_is_not_kept(tiny_config: Config, runs: Path, stopped: Path) -> None:
    from fedpu.applications.training import first_state
    from fedpu.engine import ClientStates

    directory = RunDirectory.open(stopped)
    network = tiny_config.model.build((1, 8, 8), 10)
    state = directory.resume_state(first_state(tiny_config, network, 5, 10), network)
    _, card = directory.model()
    before = (stopped / "checkpoint.safetensors").read_bytes()
    next(iter(state.model.values())).view(-1)[0] = torch.nan
    with pytest.raises(TrainingError, match=r"NaN or infinite.*is kept as it was"):
        directory.add_round({"round": 3, "seconds": 1.0}, state, card, ClientStates())
    assert (stopped / "checkpoint.safetensors").read_bytes() == before
    RunDirectory.open(stopped)


# Without a manifest, as in runs of earlier versions, what is read must still make sense.


def unchecked(folder: Path) -> None:
    (folder / "manifest.json").unlink()


@pytest.mark.filterwarnings("ignore::fedpu.errors.FedpuWarning")
@pytest.mark.parametrize(
    "value", [torch.nan, torch.inf, 3e38], ids=["NaN", "infinite", "so large that outputs are not"]
)
def test_a_model_that_is_no_number_is_no_prediction(finished: Path, tmp_path: Path, value: float) -> None:
    unchecked(finished)
    tensors, metadata = _read_tensors(finished / "model.safetensors")
    tensors = {name: torch.full_like(tensor, value) for name, tensor in tensors.items()}
    (finished / "model.safetensors").write_bytes(safetensors.torch.save(tensors, metadata))
    np.save(tmp_path / "x.npy", np.full((2, 8, 8), 255, np.uint8))
    assert "NaN or infinite" in fedpu("predict", str(finished), str(tmp_path / "x.npy"))
    assert "NaN or infinite" in fedpu("evaluate", str(finished))


def checkpoint(change: Callable[[dict[str, Any], dict[str, str]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors, metadata = _read_tensors(folder / "checkpoint.safetensors")
        change(tensors, metadata)
        (folder / "checkpoint.safetensors").write_bytes(safetensors.torch.save(tensors, metadata))

    return apply


def partition(**arrays: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        with np.load(folder / "partition.npz") as file:
            found = dict(file)
        np.savez(folder / "partition.npz", **(found | arrays))

    return apply


def rounds(**values: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        line = {"round": "1", "seconds": "1.0", "accuracy": "0.5"} | values
        text = ", ".join(f'"{name}": {value}' for name, value in line.items())
        lines = (folder / "rounds.jsonl").read_text().splitlines()
        (folder / "rounds.jsonl").write_text(f"{{{text}}}\n{lines[1]}\n")

    return apply


def first(tensors: dict[str, Any]) -> str:
    return next(name for name in tensors if name.startswith("model."))


def put(tensors: dict[str, Any], change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    tensors[first(tensors)] = change(tensors[first(tensors)])


def card(**values: Any) -> Callable[[Path], None]:
    def change(_: dict[str, Any], metadata: dict[str, str]) -> None:
        metadata["card"] = json.dumps(json.loads(metadata["card"]) | values)

    return checkpoint(change)


NO_OFFSETS = np.zeros(0, np.int64)
TABLE: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty offsets": (partition(offsets=NO_OFFSETS), r"partition\.npz"),
    "empty offsets and rows": (partition(offsets=NO_OFFSETS, rows=NO_OFFSETS), r"partition\.npz"),
    "offsets that fall": (partition(offsets=np.array([0, 9, 3, 1442])), "offsets"),
    "round 1e999 of the checkpoint": (checkpoint(lambda _, about: about.update(round="1e999")), "checkpoint"),
    "round 1e999 of a line": (rounds(round="1e999"), r"rounds\.jsonl"),
    "round null": (rounds(round="null"), r"rounds\.jsonl"),
    "seconds null": (rounds(seconds="null"), r"rounds\.jsonl"),
    "seconds infinite": (rounds(seconds="1e999"), r"rounds\.jsonl"),
    "an accuracy that is a list": (rounds(accuracy="[1]"), r"rounds\.jsonl"),
    "float64": (checkpoint(lambda tensors, _: put(tensors, torch.Tensor.double)), "does not fit"),
    "another shape": (checkpoint(lambda tensors, _: put(tensors, lambda value: value[:1].clone())), "does not fit"),
    "a tensor missing": (checkpoint(lambda tensors, _: tensors.pop(first(tensors))), "does not fit"),
    "NaN": (checkpoint(lambda tensors, _: put(tensors, lambda value: value * torch.nan)), "NaN or infinite"),
    "clients without numbers": (
        checkpoint(lambda tensors, _: tensors.update({"clients.all.x": torch.ones(2)})),
        r"checkpoint\.safetensors",
    ),
}


@pytest.mark.filterwarnings("ignore::fedpu.errors.FedpuWarning")
@pytest.mark.parametrize(("damage", "told"), TABLE.values(), ids=TABLE)
def test_an_unchecked_run_that_makes_no_sense_is_not_gone_on_with(
    stopped: Path, damage: Callable[[Path], None], told: str
) -> None:
    unchecked(stopped)
    damage(stopped)
    with pytest.raises(FedpuError, match=told):
        resume(stopped)


CARDS: dict[str, dict[str, Any]] = {
    "no shape": {"shape": []},
    "a shape of texts": {"shape": ["1", 8, 8]},
    "a number for a shape": {"shape": 8},
    "no classes": {"classes": []},
    "another type": {"dtype": "object"},
    "no normalisation": {"normalisation": None},
    "a deviation of nothing": {"normalisation": {"scale": 1.0, "mean": [0.0], "std": [0.0]}},
    "a mean too many": {"normalisation": {"scale": 1.0, "mean": [0.0, 0.0], "std": [1.0, 1.0]}},
}


@pytest.mark.filterwarnings("ignore::fedpu.errors.FedpuWarning")
@pytest.mark.parametrize("values", CARDS.values(), ids=CARDS)
def test_a_damaged_card_is_named(stopped: Path, values: dict[str, Any]) -> None:
    unchecked(stopped)
    card(**values)(stopped)
    assert "checkpoint.safetensors' is damaged" in fedpu("evaluate", str(stopped))
