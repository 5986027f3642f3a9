"""The command line, run as a user runs it, on real small data; where it matters, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command import Printed, fedpu
from fedpu.cli import main

TINY = [
    "--set=data.name=digits",
    "--set=partition.clients=5",
    "--set=labelling.positive=2",
    "--set=model.name=mlp",
    "--set=aggregation.rounds=2",
    "--set=engine.workers=1",
]


def process(*arguments: str, cwd: Path, code: int = 0) -> Printed:
    """Run a command in a process of its own."""
    environment = {**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "fedpu", *arguments], cwd=cwd, capture_output=True, text=True, env=environment
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return Printed(done.stdout, done.stderr)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    process("run", *TINY, "--out", "r", cwd=folder)
    return folder


def test_help_teaches_every_command(tmp_path: Path) -> None:
    text = fedpu("--help", cwd=tmp_path).stdout
    for command in (
        "run",
        "compare",
        "tune",
        "reproduce",
        "show",
        "priors",
        "bound",
        "data",
        "config",
        "evaluate",
        "predict",
    ):
        assert command in text
        assert "Usage" in fedpu(command, "--help", cwd=tmp_path).stdout


def test_run_records_and_tells(trained: Path) -> None:
    done = fedpu("run", *TINY, "--json", cwd=trained)
    result = json.loads(done.stdout)
    assert result["method"] == "fedpu"
    assert result["rounds"] == 2
    assert (trained / result["run"] / "result.json").exists()
    assert "round 2 of 2, accuracy" in done.stderr
    assert result["accuracy"] == json.loads((trained / "r/result.json").read_text())["accuracy"]
    assert fedpu("run", *TINY, "--quiet", cwd=trained).stderr == ""


def test_priors_that_are_mostly_guessed_bring_a_warning(tmp_path: Path) -> None:
    few = (*TINY, "--set", "partition.clients=4", "--set", "labelling.positive=3", "--set", "labelling.overlap=true")
    done = fedpu("priors", *few, "--set", "priors.others=even", "--json", cwd=tmp_path)
    (told,) = json.loads(done.stdout)["warnings"]
    assert "more guess than estimate" in told
    assert told in done.stderr
    trained = fedpu("run", *few, "--set", "priors.source=estimated", "--json", cwd=tmp_path)
    assert told in trained.stderr
    assert json.loads(trained.stdout)["warnings"] == [told]


def test_evaluate_gives_the_recorded_accuracy(trained: Path) -> None:
    metrics = json.loads(fedpu("evaluate", "r", "--json", cwd=trained).stdout)
    assert metrics["accuracy"] == json.loads((trained / "r/result.json").read_text())["accuracy"]
    assert "accuracy" in fedpu("evaluate", "r", cwd=trained).stdout


def test_evaluate_goes_by_the_names_of_classes_and_refuses_other_types(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    x = (rng.normal(size=(300, 4)) + 5 * np.eye(4)[y]).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=y, classes=["cat", "dog", "fox"])
    np.savez(tmp_path / "b.npz", x=x, y=(y + 1) % 3, classes=["fox", "cat", "dog"])
    np.savez(tmp_path / "c.npz", x=x, y=y, classes=["cat", "dog", "cow"])
    np.savez(tmp_path / "d.npz", x=np.abs(x * 20).astype(np.uint8), y=y, classes=["cat", "dog", "fox"])
    run = [
        "--set=data.name=a.npz",
        "--set=partition.clients=3",
        "--set=aggregation.rounds=5",
        "--set=aggregation.lr=0.1",
    ]
    fedpu("run", *run, "--set=model.name=mlp", "--set=method.name=supervised", "--out", "r", "-q", cwd=tmp_path)
    first = json.loads(fedpu("evaluate", "r", "--json", cwd=tmp_path).stdout)["accuracy"]
    assert first > 0.9
    again = json.loads(fedpu("evaluate", "r", "--data", "b.npz", "--json", cwd=tmp_path).stdout)["accuracy"]
    assert again == pytest.approx(first, abs=0.1)
    assert "class 'cow'" in fedpu("evaluate", "r", "--data", "c.npz", cwd=tmp_path, code=1).stderr
    assert "These inputs are uint8" in fedpu("evaluate", "r", "--data", "d.npz", cwd=tmp_path, code=1).stderr
    (tmp_path / "elsewhere").mkdir()
    assert json.loads(fedpu("evaluate", "../r", "--json", cwd=tmp_path / "elsewhere").stdout)["accuracy"] == first


def test_predict_reads_arrays_and_images(trained: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (4, 8, 8)).astype(np.uint8)
    np.savez(trained / "new.npz", x=x)
    lines = fedpu("predict", "r", "new.npz", cwd=trained).stdout.splitlines()
    assert lines[0] == "example,class,probability"
    assert len(lines) == 5
    Image.fromarray(x[0]).save(trained / "one.png")
    (row,) = json.loads(fedpu("predict", "r", "one.png", "--json", cwd=trained).stdout)
    assert row["example"] == "one.png"
    assert row["class"] in [str(c) for c in range(10)]
    np.savez(trained / "wrong.npz", x=x[:, :5])
    assert (
        "These inputs are 1×5×8; the model was trained on 1×8×8"
        in fedpu("predict", "r", "wrong.npz", cwd=trained, code=1).stderr
    )


def test_show_draws_who_labels_what(tmp_path: Path) -> None:
    done = fedpu("show", *TINY, "--save", "p.png", cwd=tmp_path)
    assert done.stdout.count("█") == 11  # ten labelled cells and the legend
    assert (tmp_path / "p.png").stat().st_size > 1000
    counts = json.loads(fedpu("show", *TINY, "--json", cwd=tmp_path).stdout)
    assert np.sum(counts["labelled"]) + np.sum(counts["unlabelled"]) == 1442


def test_config_prints_a_file_that_runs(tmp_path: Path) -> None:
    text = fedpu("config", cwd=tmp_path).stdout
    assert tomllib.loads(text)["method"]["name"] == "fedpu"
    (tmp_path / "my.toml").write_text(text)
    fedpu("run", "my.toml", *TINY, cwd=tmp_path)
    assert "quickstart" in fedpu("config", "--presets", cwd=tmp_path).stdout


def test_compare_prints_one_table(tmp_path: Path) -> None:
    done = fedpu("compare", *TINY, "--seeds", "2", "--out", "c", cwd=tmp_path)
    for word in ("aligned", "fedpu", "positive-only", "supervised", "±", "supervision gap closed", "0%", "100%"):
        assert word in done.stdout
    rows = json.loads((tmp_path / "c/comparison.json").read_text())["rows"]
    assert [len(row["accuracies"]) for row in rows] == [2, 2, 2, 2]
    assert (tmp_path / "c/report.html").exists()


def test_data_can_be_listed_and_looked_at(tmp_path: Path) -> None:
    assert "mnist-5k" in fedpu("data", "list", cwd=tmp_path).stdout
    assert "1,442 training" in fedpu("data", "show", "digits", cwd=tmp_path).stdout


@pytest.mark.parametrize("presses", [1, 2, 5])
def test_ctrl_c_ends_cleanly_and_keeps_the_finished_rounds(tmp_path: Path, presses: int) -> None:
    arguments = ["run", *TINY, "--set=aggregation.rounds=100000", "--set=engine.workers=2", "--out", "r"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedpu", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    rounds = tmp_path / "r/rounds.jsonl"
    while process.poll() is None and (not rounds.exists() or rounds.read_text().count("\n") < 2):
        pass
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        time.sleep(0.005)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in told
    assert "fedpu run --resume r" in told or (presses > 2 and "Finished rounds are kept" in told)
    done = len(rounds.read_text().splitlines())
    assert done >= 2
    assert json.loads(fedpu("evaluate", "r", "--json", cwd=tmp_path).stdout)["accuracy"] > 0


WRONG = {
    "unknown key": (["run", "--set", "method.nme=x"], "no setting 'method.nme'"),
    "unknown method": (["compare", "--methods", "fedpo"], "Did you mean 'fedpu'"),
    "missing configuration": (["run", "nothing.toml"], "no configuration file 'nothing.toml'"),
    "missing data": (["run", "--set", "data.name=nothing.npz"], "nothing.npz"),
    "a name that is no data set": (["data", "show", "mnits"], "Did you mean 'mnist'"),
    "a class nobody labels": (["run", *TINY, "--set", "labelling.positive=1"], "labelled by nobody"),
    "more positive classes than held": (["run", *TINY, "--set", "labelling.positive=12"], "12 positive classes"),
    "zero clients": (["run", *TINY, "--set", "partition.clients=0"], "partition.clients = 0"),
    "more clients than examples": (["run", *TINY, "--set", "partition.clients=5000"], "at least one"),
    "a model for other inputs": (["run", *TINY, "--set", "model.name=paper-cnn"], "at least 16×16"),
    "no such run": (["evaluate", "nowhere"], "not a run directory"),
    "no such preset": (["run", "--preset", "quickstrt"], "Did you mean 'quickstart'"),
    "nothing to resume": (["run", "--resume", "nowhere"], "not a run directory"),
    "settings beside resume": (["run", "--resume", "r", "--set", "seed=1"], "no other settings"),
    "labels out of range": (["run", "--set", "data.name=range.npz"], "labels out of range"),
    "NaN pixels": (["run", "--set", "data.name=nan.npz"], "NaN"),
    "not an archive": (["run", "--set", "data.name=text.npz"], "text.npz"),
    "an unwritable folder": (["run", *TINY, "--out", "text.npz/r"], "could not be written"),
    "a path that is too long": (["run", "--set", f"data.name={'x' * 300}.npz"], "File name too long"),
    "a home that is not there": (["run", "--set", "data.name=~nobody-of-that-name/x.npz"], "can't be read as a path"),
    "a model that is not there": (["run", *TINY, "--set", "model.name=nowhere:net"], "can't be imported"),
    "memory that is not there": (["run", *TINY, "--set", "model.hidden=[1000000,1000000]"], "not enough memory"),
    "a full disk": (["run", *TINY, "--out", "/dev/full/r"], "could not be written"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_gets_one_sentence_and_a_failing_exit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    x = np.random.default_rng(0).normal(size=(40, 4))
    np.savez(tmp_path / "range.npz", x=x, y=np.arange(40) % 4 - 3)
    np.savez(tmp_path / "nan.npz", x=np.where(x > 2, np.nan, x), y=np.arange(40) % 4)
    (tmp_path / "text.npz").write_text("hello")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedpu", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    told = capsys.readouterr().err
    assert exit_.value.code == 1
    assert told.startswith("error: ")
    assert message in told
    assert len(told.strip().splitlines()) == 1


def test_a_mistake_ends_the_process_with_status_1_and_no_traceback(tmp_path: Path) -> None:
    assert fedpu("run", "nothing.toml", cwd=tmp_path, code=1).stderr.startswith("error: There is no configuration file")


def test_tune_writes_what_it_chose(tmp_path: Path) -> None:
    over = ["--over", "aggregation.lr=.001,.2", "--seeds", "2", "--out", "t"]
    done = fedpu("tune", *TINY, *over, cwd=tmp_path)
    assert "Chosen: aggregation.lr=0.2" in done.stdout
    assert "not used" not in done.stdout
    assert tomllib.loads((tmp_path / "t/best.toml").read_text())["aggregation"]["lr"] == 0.2
    chosen = json.loads((tmp_path / "t/tune.json").read_text())
    assert chosen["chosen"] == ["aggregation.lr=0.2"]
    again = fedpu("tune", *TINY, *over, "--show-test", "--json", "--quiet", cwd=tmp_path)
    assert json.loads(again.stdout)["trials"][0]["test_accuracies_not_used"]
    assert "test accuracy (not used)" in fedpu("tune", *TINY, *over, "--show-test", "-q", cwd=tmp_path).stdout
    fedpu("run", "t/best.toml", "-q", cwd=tmp_path)
    assert "nothing to choose from" in fedpu("tune", *TINY, cwd=tmp_path, code=1).stderr
