"""A trained model in use: from Python, from the command line, and exported, on images, a table and texts."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits

import fedpu
from command import fedpu as command
from fedpu.applications.export import EXPORTERS, export
from fedpu.applications.export.onnx_file import columns_of
from fedpu.applications.export.torch_program import codes
from fedpu.data.table import of_columns
from fedpu.errors import ConfigError, DataError, FedpuError

QUICK = ["aggregation.rounds=3", "engine.workers=1", "method.name=positive-only"]


@dataclass(frozen=True)
class Trained:
    """A run, and raw rows that it has not seen: a file, and what it holds."""

    run: Path
    result: fedpu.Result
    file: Path
    rows: Any


def images(folder: Path) -> Trained:
    found = load_digits()
    pixels = (found.images * 15).astype(np.uint8).repeat(2, axis=1).repeat(2, axis=2)
    data = fedpu.read(pixels[:600], np.where(np.arange(600) % 3, -1, found.target[:600]))
    result = fedpu.run(fedpu.config_for(data, *QUICK), data=data, out=folder / "run")
    np.savez(folder / "new.npz", x=pixels[600:640])
    return Trained(folder / "run", result, folder / "new.npz", pixels[600:640])


def a_frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(50, 20, rows).round(1), "dose": rng.exponential(size=rows)})
    frame["ward"] = rng.choice(["A", "B, east", "C"], rows)
    frame.loc[rng.random(rows) < 0.2, "dose"] = np.nan
    return frame


def table(folder: Path) -> Trained:
    frame, new = a_frame(300, 0), a_frame(50, 1)
    frame["label"] = np.where(frame["ward"] == "A", "low", np.where(frame["age"] > 50, "high", "middle"))
    frame.loc[::2, "label"] = None
    frame["client"] = np.arange(300) % 3
    new.loc[0, "ward"], new.loc[1, "ward"], new.loc[2, "age"] = "D", None, np.nan
    frame.to_csv(folder / "own.csv", index=False)
    new.to_csv(folder / "new.csv", index=False)
    data = fedpu.read(folder / "own.csv")
    result = fedpu.run(fedpu.config_for(data, *QUICK), data=data, out=folder / "run")
    return Trained(folder / "run", result, folder / "new.csv", new)


def texts(folder: Path) -> Trained:
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 50, (200, 12))
    ids[:, 8:] *= rng.random((200, 4)) < 0.5  # padding
    labels = np.where(np.arange(200) % 2, -1, (ids < 20).sum(axis=1) > 5)
    data = fedpu.read(ids, labels, tokens=True)
    result = fedpu.run(fedpu.config_for(data, *QUICK), data=data, out=folder / "run")
    np.savez(folder / "new.npz", x=ids[:30, :9])  # shorter than those of training
    return Trained(folder / "run", result, folder / "new.npz", ids[:30, :9])


KINDS = {"images": images, "table": table, "texts": texts}


@pytest.fixture(scope="module", params=KINDS)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return KINDS[request.param](tmp_path_factory.mktemp(request.param))


def told(trained: Trained) -> np.ndarray[Any, Any]:
    """Return what ``fedpu predict`` prints of the rows of the file."""
    printed = command("predict", str(trained.run), str(trained.file), "--probabilities", cwd=trained.run).stdout
    lines = list(csv.DictReader(io.StringIO(printed)))
    classes = trained.result.card.classes
    assert [line["class"] for line in lines] == trained.result.predict(trained.rows).tolist()
    return np.array([[float(line[f"p({name})"]) for name in classes] for line in lines])


def test_python_and_the_command_line_predict_the_same(trained: Trained) -> None:
    found = trained.result.predict_proba(trained.rows)
    assert np.abs(told(trained) - found).max() <= 1e-6
    assert np.allclose(found.sum(axis=1), 1, atol=1e-5)
    loaded = fedpu.load_model(trained.run)
    assert loaded.classes == trained.result.card.classes
    assert np.array_equal(loaded.predict_proba(trained.rows), found)
    assert np.array_equal(loaded.predict_proba(trained.file), found)
    assert loaded.card == trained.result.card


def fed(trained: Trained) -> dict[str, Any]:
    """Return the raw rows as onnxruntime takes them."""
    encoding = trained.result.card.encoding
    if encoding is not None:
        return columns_of(of_columns({name: trained.rows[name] for name in trained.rows}, "new"), encoding)
    rows = trained.rows[:, None] if trained.rows.ndim == 3 else np.pad(trained.rows, ((0, 0), (0, 3)))
    return {"inputs": rows}


def test_onnxruntime_gives_what_fedpu_predict_does(trained: Trained, tmp_path: Path) -> None:
    command("export", str(trained.run), "--format", "onnx", "--out", str(tmp_path / "model.onnx"), cwd=tmp_path)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    [found] = session.run(["probabilities"], fed(trained))
    assert np.abs(found - told(trained)).max() <= 1e-5
    card = json.loads(session.get_modelmeta().custom_metadata_map["card"])
    assert tuple(card["classes"]) == trained.result.card.classes


def test_pytorch_alone_gives_what_fedpu_predict_does(trained: Trained, tmp_path: Path) -> None:
    assert export(trained.result.trained, tmp_path / "model.pt2", "torch") <= 1e-5
    program = torch.export.load(tmp_path / "model.pt2").module()
    encoding = trained.result.card.encoding
    if encoding is None:
        inputs = torch.from_numpy(fed(trained)["inputs"])
    else:
        inputs = codes(of_columns({name: trained.rows[name] for name in trained.rows}, "new"), encoding)
    assert np.abs(program(inputs).detach().numpy() - told(trained)).max() <= 1e-5


def test_one_file_of_safetensors_is_a_model_without_its_run(trained: Trained, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    assert export(trained.result.trained, path, "safetensors") == 0
    assert np.array_equal(fedpu.load_model(path).predict(trained.rows), trained.result.predict(trained.rows))
    with pytest.raises(FedpuError, match="does not say how its network is built"):
        fedpu.load_model(trained.run / "model.safetensors")


def test_an_export_is_refused_before_anything_is_written(trained: Trained, tmp_path: Path) -> None:
    model = trained.result.trained
    with pytest.raises(ConfigError, match=r"must end in \.onnx"):
        export(model, tmp_path / "model.bin", "onnx")
    with pytest.raises(ConfigError, match="no folder"):
        export(model, tmp_path / "absent" / "model.onnx", "onnx")
    with pytest.raises(ConfigError, match="Did you mean 'onnx'"):
        export(model, tmp_path / "model.onnx", "onx")
    assert list(EXPORTERS) == ["onnx", "torch", "safetensors"]
    assert not list(tmp_path.iterdir())


def test_rows_that_are_none_of_the_models_are_told(tmp_path: Path) -> None:
    found = table(tmp_path)
    with pytest.raises(DataError, match="has no column 'dose', which the model was trained with"):
        found.result.predict(found.rows.drop(columns="dose"))
    with pytest.raises(DataError, match="the column 'age' must hold numbers; it has 'old'"):
        found.result.predict(found.rows.assign(age="old"))
    with pytest.raises(DataError, match="trained on a table with the columns 'age', 'dose', 'ward'"):
        found.result.predict(np.zeros((3, 5)))
    # Order and further columns play no part.
    mixed = found.rows[["ward", "dose", "age"]].assign(label="?", more=1)
    assert np.array_equal(found.result.predict(mixed), found.result.predict(found.rows))


def test_token_ids_beyond_the_vocabulary_are_told(tmp_path: Path) -> None:
    found = texts(tmp_path)
    with pytest.raises(DataError, match="token id 50; the model knows ids up to 49"):
        found.result.predict(np.full((1, 12), 50))


def test_a_record_of_a_table_holds_its_columns(tmp_path: Path) -> None:
    found = table(tmp_path)
    names = [column["name"] for column in found.result.summary["columns"]]
    assert names == ["age", "dose", "ward"]
    assert json.loads((found.run / "result.json").read_text())["columns"][2]["words"] == ["A", "B, east", "C"]
