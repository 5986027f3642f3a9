"""A node's own, partly labelled data: from a .npz file, a folder of images, or a Python function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import fedpu
from fedpu.config import Config
from fedpu.data import Normalisation
from fedpu.deploy import NodeSettings
from fedpu.deploy.own_data import own_federation, read_own
from fedpu.errors import ConfigError, DataError
from fedpu.record import ModelCard

CLASSES = ("cat", "dog", "owl")
CARD = ModelCard((1, 4, 4), "uint8", CLASSES, Normalisation(1 / 255, (0.5,), (0.25,)))
CONFIG = Config.load(overrides=["priors.source=given", "priors.values=0.3"])


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 4, 4), dtype=np.uint8)


def node(data: Path | str) -> NodeSettings:
    return NodeSettings(name="vet", data=str(data))


def test_arrays_become_a_client_that_knows_its_positive_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "vet.npz", x=images(6), y=[1, -1, -1, 1, -1, -1])
    client = own_federation(node(tmp_path / "vet.npz"), CONFIG, CARD).client(0)
    assert client.positive.tolist() == [False, True, False]
    assert client.labels.tolist() == [1, -1, -1, 1, -1, -1]
    assert client.priors is not None
    assert client.priors.tolist() == pytest.approx([0.3] * 3)
    assert client.summary.unlabelled == 4
    inputs, _ = client.batch(torch.tensor([0]))
    assert torch.allclose(inputs, (torch.from_numpy(images(6)[:1, None]) / 255 - 0.5) / 0.25)


def test_class_names_of_its_own_are_put_in_the_federations_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "vet.npz", x=images(3), y=[0, 1, -1], classes=["owl", "cat"])
    _, labels = read_own(node(tmp_path / "vet.npz"), CLASSES)
    assert labels.tolist() == [2, 0, -1]


def test_a_folder_has_a_folder_a_class_and_one_for_the_unlabelled(tmp_path: Path) -> None:
    for number, name in enumerate(["dog", "unlabelled", "unlabelled"]):
        (tmp_path / name).mkdir(exist_ok=True)
        Image.fromarray(images(3)[number]).save(tmp_path / name / f"{number}.png")
    inputs, labels = read_own(node(tmp_path), CLASSES)
    assert labels.tolist() == [1, -1, -1]
    assert inputs.shape == (3, 1, 4, 4)
    (tmp_path / "cow").mkdir()
    with pytest.raises(DataError, match="'cow', which is no class of the federation"):
        read_own(node(tmp_path), CLASSES)


@pytest.fixture
def patients(tmp_path: Path) -> fedpu.Dataset:
    """The server's table, all labelled, which gives the rule for columns; the node's file has others and fewer."""
    rows = {"age": [61.0, 48, 35, 70], "ward": ["A", "B", "A", "B"], "dose": [0.5, np.nan, 1.5, 1.0]}
    server = pd.DataFrame(rows | {"label": ["cat", "dog", "owl", "cat"]})
    own = {"ward": ["B", "C", None], "dose": [2.0, np.nan, 0.0], "age": [20.0, 30, 40], "id": ["x", "y", "z"]}
    table = pd.DataFrame(own | {"kind": ["dog", None, None]})
    table.to_csv(tmp_path / "vet.csv", index=False)
    table.to_parquet(tmp_path / "vet.parquet")
    return fedpu.read(server, test_fraction=0)


@pytest.mark.parametrize("file", ["vet.csv", "vet.parquet"])
def test_a_table_is_read_by_the_federations_rule(tmp_path: Path, patients: fedpu.Dataset, file: str) -> None:
    settings = NodeSettings(name="vet", data=str(tmp_path / file), label="kind")
    client = own_federation(settings, CONFIG, ModelCard.of(patients)).client(0)
    assert client.labels.tolist() == [1, -1, -1]
    # age; ward A, ward B, of which C is neither; dose with the server's median for what is missing, and its mark
    assert client.inputs.tolist() == [[20, 0, 1, 2, 0], [30, 0, 0, 1, 1], [40, 0, 0, 0, 0]]
    assert client.inputs.dtype == patients.inputs.dtype


def test_a_table_without_a_rule_is_one_of_numbers_alone(tmp_path: Path, patients: fedpu.Dataset) -> None:
    settings = NodeSettings(name="vet", data=str(tmp_path / "vet.csv"), label="kind")
    with pytest.raises(DataError, match="a rule that all nodes must share"):
        read_own(settings, CLASSES)
    inputs, labels = read_own(settings.model_copy(update={"ignore": ["id", "ward", "dose"]}), CLASSES)
    assert inputs.tolist() == [[20], [30], [40]]
    assert labels.tolist() == [1, -1, -1]


def test_what_a_table_lacks_is_said(tmp_path: Path, patients: fedpu.Dataset) -> None:
    with pytest.raises(DataError, match="no column 'label'"):
        read_own(node(tmp_path / "vet.csv"), CLASSES)
    settings = NodeSettings(name="vet", data=str(tmp_path / "vet.csv"), label="kind")
    with pytest.raises(DataError, match="the label 'dog', which is none of its classes"):
        read_own(settings, ("cat", "cow"), encoding=patients.encoding)
    (tmp_path / "vet.xlsx").touch()
    with pytest.raises(DataError, match="none that can be read"):
        read_own(node(tmp_path / "vet.xlsx"), CLASSES)


def test_short_texts_are_filled_up_to_the_length_of_the_federation(tmp_path: Path) -> None:
    np.savez(tmp_path / "vet.npz", x=np.array([[3, 4], [5, 6]]), y=[1, -1])
    card = ModelCard((4,), "int64", CLASSES, Normalisation.of_tokens())
    client = own_federation(node(tmp_path / "vet.npz"), CONFIG, card).client(0)
    assert client.inputs.tolist() == [[3, 4, 0, 0], [5, 6, 0, 0]]


def test_a_function_returns_the_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clinic.py").write_text("import numpy as np\ndef data():\n    return np.zeros((2, 4, 4)), [2, -1]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    _, labels = read_own(node("clinic:data"), CLASSES)
    assert labels.tolist() == [2, -1]


@pytest.mark.parametrize(
    ("y", "told"),
    [([3, 0], "the label 3; the federation has the classes 0 … 2"), ([-1, -1], "no label at all"), ([0], "1 labels")],
)
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, y: list[int], told: str) -> None:
    np.savez(tmp_path / "vet.npz", x=images(2), y=y)
    with pytest.raises(DataError, match=told):
        read_own(node(tmp_path / "vet.npz"), CLASSES)


def test_a_supervised_run_needs_every_label(tmp_path: Path) -> None:
    np.savez(tmp_path / "vet.npz", x=images(2), y=[0, -1])
    with pytest.raises(DataError, match="needs every label, but 'vet' has −1"):
        own_federation(node(tmp_path / "vet.npz"), CONFIG.with_("method.name=supervised"), CARD)


def test_a_nodes_file_is_checked_and_its_paths_are_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('name = "vet"\ndata = "own/vet.npz"\nkey = "vet.key"\n[priors]\nsource = "given"\nvalues = 0.2\n')
    settings = NodeSettings.load(file)
    assert settings.data == str(tmp_path / "own/vet.npz")
    assert settings.key == str(tmp_path / "vet.key")
    assert settings.priors is not None
    assert settings.priors.values == 0.2
    file.write_text('name = "vet"\ndatta = "vet.npz"\n')
    with pytest.raises(ConfigError, match=r"has no setting 'datta'. Did you mean 'data'\?"):
        NodeSettings.load(file)
    file.write_text('name = "vet"\n')
    with pytest.raises(ConfigError, match="must say either 'data'"):
        NodeSettings.load(file)
