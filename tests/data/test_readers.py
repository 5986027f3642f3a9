"""Data in every form that is read: the same examples give the same federation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

import fedpu
from fedpu.applications.prepared import prepare
from fedpu.config import Config
from fedpu.data import READERS, DataSettings, load, read
from fedpu.data.encoding import NumberColumn, WordColumn
from fedpu.errors import ConfigError, DataError

ROWS = int(os.environ.get("FEDPU_TEST_ROWS", "500"))
"""of the table that comes in every form; with 100,000 all forms take some minutes"""
GIVEN = ("priors.source=given", "priors.values=0.33")
"""class shares, the estimate of which takes most of the time of so short a training"""


def a_table(rows: int = ROWS) -> pd.DataFrame:
    """Numbers, half of them 0 as in TF-IDF, with three classes, of which most labels are missing, and two clients."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random((rows, 6)) < 0.5, 0, rng.normal(size=(rows, 6))).astype(np.float32)
    frame = pd.DataFrame(values, columns=list("abcdef"))
    labels = np.array(["cat", "dog", "owl"], dtype=object)[rng.integers(0, 3, rows)]
    labels[rng.random(rows) < 0.6] = None
    frame["label"] = labels
    frame["client"] = np.array(["north", "south"])[rng.integers(0, 2, rows)]
    return frame


class Examples(TorchDataset):  # type: ignore[type-arg]
    classes = ("cat", "dog", "owl")

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, str | None, str]:
        found = self.frame.iloc[row]
        label = None if pd.isna(found["label"]) else found["label"]
        return torch.tensor(found[list("abcdef")].to_numpy(dtype=np.float32)), label, found["client"]


def as_csv(frame: pd.DataFrame, folder: Path) -> fedpu.Dataset:
    frame.to_csv(folder / "own.csv", index=False)
    return load(DataSettings(name=str(folder / "own.csv")))


def as_packed_tsv(frame: pd.DataFrame, folder: Path) -> fedpu.Dataset:
    frame.to_csv(folder / "own.tsv.gz", index=False, sep="\t")
    return read(folder / "own.tsv.gz")


def as_parquet(frame: pd.DataFrame, folder: Path) -> fedpu.Dataset:
    frame.to_parquet(folder / "own.parquet")
    return read(str(folder / "own.parquet"))


def as_npz(frame: pd.DataFrame, folder: Path) -> fedpu.Dataset:
    names = frame["label"].fillna("").to_numpy(dtype=str)
    np.savez(
        folder / "own.npz", x=frame[list("abcdef")].to_numpy(), y=names, client=frame["client"].to_numpy(dtype=str)
    )
    return read(folder / "own.npz")


def as_sparse(frame: pd.DataFrame, folder: Path) -> fedpu.Dataset:
    matrix = scipy.sparse.csr_matrix(frame[list("abcdef")].to_numpy())
    return read(matrix, frame["label"], client=frame["client"])


def as_arrays_of_numbers(frame: pd.DataFrame, folder: Path) -> fedpu.Dataset:
    numbers = frame["label"].map({"cat": 0, "dog": 1, "owl": 2}).fillna(-1).to_numpy(dtype=int)
    owner = (frame["client"] == "south").to_numpy(dtype=int)
    values = frame[list("abcdef")].to_numpy()
    return fedpu.Dataset.from_arrays(values, numbers, client=owner, classes=["cat", "dog", "owl"])


def as_hugging_face(frame: pd.DataFrame, folder: Path) -> fedpu.Dataset:
    return read(datasets.Dataset.from_pandas(frame))


FORMS: dict[str, Callable[[pd.DataFrame, Path], fedpu.Dataset]] = {
    "csv": as_csv,
    "tsv.gz": as_packed_tsv,
    "parquet": as_parquet,
    "npz": as_npz,
    "pandas": lambda frame, folder: read(frame),
    "polars": lambda frame, folder: read(pl.from_pandas(frame)),
    "frame and labels": lambda frame, folder: read(
        frame[list("abcdef")], frame["label"].to_numpy(), client=frame["client"].to_numpy()
    ),
    "sparse": as_sparse,
    "numbers": as_arrays_of_numbers,
    "torch": lambda frame, folder: read(Examples(frame)),
    "hugging face": as_hugging_face,
}


@pytest.fixture(scope="module")
def from_csv(tmp_path_factory: pytest.TempPathFactory) -> tuple[fedpu.Dataset, dict[str, torch.Tensor]]:
    """What every other form must equal: the data of a CSV file, and the model that is trained on them."""
    data = as_csv(a_table(), tmp_path_factory.mktemp("csv"))
    return data, trained(data)


def trained(data: fedpu.Dataset) -> dict[str, torch.Tensor]:
    config = fedpu.config_for(data, "aggregation.rounds=2", "engine.workers=1", *GIVEN)
    return fedpu.run(config, data=data).model.state_dict()


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_federation_and_the_same_bits(
    form: str, tmp_path: Path, from_csv: tuple[fedpu.Dataset, dict[str, torch.Tensor]]
) -> None:
    first, model = from_csv
    other = FORMS[form](a_table(), tmp_path)
    assert first.classes == other.classes == ("cat", "dog", "owl")
    assert first.normalisation == other.normalisation
    config = Config.load(overrides=["partition.kind=column", "labelling.positive=as-given", *GIVEN])
    one, two = prepare(config, first), prepare(config, other)
    for name in ("inputs", "rows", "labels", "offsets", "positive", "priors"):
        assert torch.equal(getattr(one.federation, name), getattr(two.federation, name)), name
    assert one.test_set is not None
    assert two.test_set is not None
    assert torch.equal(one.test_set.inputs, two.test_set.inputs)
    assert torch.equal(one.test_set.labels, two.test_set.labels)
    same = trained(other)
    assert same.keys() == model.keys()
    assert all(torch.equal(model[name], value) for name, value in same.items())


def test_a_model_of_a_csv_file_is_that_of_its_parquet_twin_bit_for_bit(tmp_path: Path) -> None:
    frame = a_table()
    frame["kind"] = np.where(frame["a"] > 0, "wet", "dry")
    frame.loc[::7, "b"] = np.nan
    models = []
    for data in (as_csv(frame, tmp_path), as_parquet(frame, tmp_path), read(frame)):
        models.append(trained(data))
    for other in models[1:]:
        assert all(torch.equal(models[0][name], value) for name, value in other.items())


def test_words_and_missing_values_follow_the_rule() -> None:
    frame = pd.DataFrame(
        {
            "size": [1.0, None, 3.0, 5.0] * 5,
            "colour": ["red", "blue", None, "red"] * 5,
            "young": [True, False, True, True] * 5,
            "label": ["x", "y", None, None] * 5,
        }
    )
    data = read(frame, test_fraction=0.0)
    assert data.encoding is not None
    assert data.encoding.columns == (
        NumberColumn("size", 3.0, True),
        WordColumn("colour", ("blue", "red")),
        WordColumn("young", ("False", "True")),
    )
    assert data.inputs[:4].tolist() == [[1, 0, 0, 1, 0, 1], [3, 1, 1, 0, 1, 0], [3, 0, 0, 0, 0, 1], [5, 0, 0, 1, 0, 1]]
    assert data.labels[:4].tolist() == [0, 1, -1, -1]
    new = fedpu.data.table.of_columns({"young": [False], "colour": ["green"], "size": [None], "more": ["?"]}, "new")
    assert data.encoding.encode(new, "new").tolist() == [[3, 1, 0, 0, 1, 0]]
    with pytest.raises(DataError, match=r"has no column 'colour', 'young', which the model was trained with"):
        data.encoding.encode(fedpu.data.table.of_columns({"size": [1]}, "new"), "new")
    assert fedpu.data.Encoding.from_dict(data.encoding.to_dict()) == data.encoding


def test_the_rule_is_that_of_the_training_rows_alone() -> None:
    frame = pd.DataFrame({"a": np.arange(40.0), "word": [f"w{i % 8}" for i in range(40)], "label": ["x", "y"] * 20})
    data = read(frame, test_fraction=0.5)
    assert data.encoding is not None
    first = data.encoding.columns[0]
    assert isinstance(first, NumberColumn)
    assert first.fill == float(np.median(data.inputs[:, 0].numpy()))


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([3, 10, 2, None] * 5, ("2", "3", "10")),
        (["b", "", "a", None] * 5, ("a", "b")),
        ([True, False, None, True] * 5, ("False", "True")),
        ([0.0, np.nan, 1.0, -1.0] * 5, ("0", "1")),
        (["NA", "no", "yes", ""] * 5, ("NA", "no", "yes")),
    ],
)
def test_classes_are_named_as_the_label_column_has_them(labels: list[Any], classes: tuple[str, ...]) -> None:
    data = read(pd.DataFrame({"a": range(20), "label": pd.Series(labels, dtype=object)}))
    assert data.classes == classes
    assert int((data.labels < 0).sum()) == sum(one is None or one != one or one in ("", -1.0) for one in labels)


def test_a_category_that_nobody_has_is_a_class_that_nobody_labels() -> None:
    labels = pd.Categorical(["cat", "dog", None, "cat"] * 5, categories=["cat", "dog", "owl"])
    with pytest.raises(DataError, match=r"no training example has class 2 \('owl'\)"):
        read(pd.DataFrame({"a": range(20), "label": labels}))


def test_a_file_of_test_rows_is_the_test_set(tmp_path: Path) -> None:
    frame = a_table()
    frame["kind"] = "dry"
    frame.to_csv(tmp_path / "own.csv", index=False)
    tests = a_table(30).dropna()
    tests["kind"] = "wet"
    tests.to_csv(tmp_path / "tests.csv", index=False)
    data = load(DataSettings(name=str(tmp_path / "own.csv"), test=str(tmp_path / "tests.csv")))
    assert (len(data.labels), len(data.test_labels), data.test_origin) == (ROWS, len(tests), "given")
    assert data.test_inputs[:, -1].sum() == 0  # a word that training has never seen
    with pytest.raises(DataError, match="test labels must all be known"):
        load(DataSettings(name=str(tmp_path / "own.csv"), test=str(tmp_path / "own.csv")))


def test_a_test_set_may_be_handed_over_in_any_form() -> None:
    rng = np.random.default_rng(0)
    x, y, x_test, y_test = rng.normal(size=(20, 2)), np.arange(20) % 2, rng.normal(size=(6, 2)), np.arange(6) % 2
    arrays = fedpu.read(x, np.where(y == 1, 1, np.arange(20) % 3 - 1).clip(-1, 1), x_test=x_test, y_test=y_test)
    assert arrays.test_origin == "given"
    assert arrays.test_labels.tolist() == y_test.tolist()
    names = np.array(["no", "yes"])
    frame, test = (pd.DataFrame({"a": one[:, 0], "b": one[:, 1]}) for one in (x, x_test))
    apart = fedpu.read(frame, names[y], x_test=test, y_test=names[y_test])
    inside = fedpu.read(frame.assign(label=names[y]), x_test=test.assign(label=names[y_test]))
    assert apart.test_labels.tolist() == inside.test_labels.tolist() == y_test.tolist()
    assert torch.equal(apart.test_inputs, inside.test_inputs)
    with pytest.raises(DataError, match="no x_test"):
        fedpu.read(x, y, y_test=y_test)
    with pytest.raises(DataError, match="hand them over as y_test"):
        fedpu.read(x, y, x_test=x_test)
    with pytest.raises(ConfigError, match="Did you mean 'test'") as told:
        fedpu.read(x, y, xtest=np.zeros((1000, 50)))
    assert len(str(told.value)) < 300


def test_columns_are_named_by_settings_and_left_out(tmp_path: Path) -> None:
    frame = a_table().rename(columns={"label": "animal", "client": "site"})
    frame["when"] = pd.Timestamp("2020-02-02")
    with pytest.raises(DataError, match="'when' holds dates or times"):
        read(frame, label="animal")
    data = read(frame, label="animal", client="site", ignore=["when", "f"])
    assert data.shape == (5,)
    assert data.client_names == ("north", "south")
    with pytest.raises(ConfigError, match="Did you mean 'label'"):
        read(frame, lable="animal")


def test_labels_handed_over_apart_leave_every_column_an_input() -> None:
    frame = a_table()
    labels = frame.pop("label")
    assert read(frame, labels).client is None
    assert read(frame, labels).shape == (8,)  # the two words of the column "client" among them
    assert read(frame, labels, client="client").client_names == ("north", "south")
    with pytest.raises(DataError, match="has a column 'label' beside the labels that were handed over"):
        read(frame.assign(label=labels), labels)


def test_a_column_of_vectors_is_one_input_matrix() -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    frame = pd.DataFrame({"embedding": list(vectors), "label": ["x", "y"] * 10})
    data = read(frame, test_fraction=0.0)
    assert torch.equal(data.inputs, torch.from_numpy(vectors))
    assert torch.equal(fedpu.data.read_inputs(frame).inputs, data.inputs)
    with pytest.raises(DataError, match="which is an input by itself, beside 'size'"):
        read(frame.assign(size=1))


# Token ids


def test_token_ids_stay_whole_numbers_from_file_to_network(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 2**24 + 3, (40, 7))
    np.savez(tmp_path / "own.npz", x=ids, y=np.arange(40) % 2)
    data = load(DataSettings(name=str(tmp_path / "own.npz"), tokens=True, test_fraction=0.0))
    assert data.tokens
    assert data.inputs.tolist() == ids.tolist()  # 2²⁴ + 1 is no 32-bit float
    assert torch.equal(data.normalisation(data.inputs), data.inputs)


def test_lists_of_ids_are_filled_up_with_padding(tmp_path: Path) -> None:
    lists = [[5, 6, 7], [8], [9, 10]] * 6
    frame = pd.DataFrame({"input_ids": lists, "attention_mask": lists, "label": ["a", "b", None] * 6})
    frame.to_parquet(tmp_path / "own.parquet")
    features = datasets.Features(
        {
            "input_ids": datasets.Sequence(datasets.Value("int32")),
            "label": datasets.ClassLabel(names=["a", "b"]),
        }
    )
    tokenised = datasets.Dataset.from_dict({"input_ids": lists, "label": [0, 1, -1] * 6}, features=features)
    (tmp_path / "own.csv").write_text(
        "ids,label\n"
        + "".join(
            f"{' '.join(map(str, one))},{name}\n" for one, name in zip(lists, frame["label"].fillna(""), strict=True)
        )
    )
    found = [read(tmp_path / "own.parquet"), read(frame), read(tokenised), read(tmp_path / "own.csv", tokens=True)]
    for data in found:
        assert data.tokens
        assert data.classes == ("a", "b")
        assert torch.equal(data.inputs, found[0].inputs)
        assert torch.equal(data.labels, found[0].labels)
    assert sorted(map(tuple, found[0].inputs.unique(dim=0).tolist())) == [(5, 6, 7), (8, 0, 0), (9, 10, 0)]


def test_a_split_dataset_brings_its_test_set() -> None:
    images = [Image.fromarray(np.full((6, 5), 10 * number, dtype=np.uint8)) for number in range(12)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    one = datasets.Dataset.from_dict({"image": images, "label": [0, 1, -1] * 4}, features=features)
    two = datasets.Dataset.from_dict({"image": images[:2], "label": [1, 0]}, features=features)
    data = read(datasets.DatasetDict(train=one, test=two))
    assert data.shape == (1, 6, 5)
    assert data.inputs.dtype == torch.uint8
    assert data.labels.tolist() == [0, 1, -1] * 4
    assert data.test_labels.tolist() == [1, 0]


def test_datasets_of_tensors_are_read_and_others_told() -> None:
    values = torch.arange(40.0).view(20, 2)
    data = read(TensorDataset(values, torch.arange(20) % 2))
    assert data.shape == (2,)

    class Endless(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            yield values[0], 0

    with pytest.raises(DataError, match="Endless can only be iterated over"):
        read(Endless())
    with pytest.raises(DataError, match="gives 1 values per example"):
        read(TensorDataset(values))
    with pytest.raises(DataError, match=r"An object of type object can't be read\. What is: a CSV file"):
        read(object())
    with pytest.raises(DataError, match="the labels are missing"):
        read(values)


def test_a_sparse_matrix_that_is_too_large_is_refused_before_it_is_written_out() -> None:
    with pytest.raises(DataError, match=r"1,000,000 rows and 100,000 columns: written out it would take 373 GiB"):
        read(scipy.sparse.csr_matrix((1_000_000, 100_000), dtype=np.float32), np.zeros(1_000_000, dtype=int))


# Folders of images


def picture(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((6, 5), value, dtype=np.uint8)).save(path)


@pytest.mark.parametrize("name", ["unlabelled", "unlabeled", "Unlabelled"])
def test_a_folder_of_unlabelled_images_is_no_class(tmp_path: Path, name: str) -> None:
    for number in range(5):
        for folder in ("cat", "dog", name):
            picture(tmp_path / folder / f"{number}.png", number)
    data = load(DataSettings(name=str(tmp_path)))
    assert data.classes == ("cat", "dog")
    assert int((data.labels < 0).sum()) == 5


def test_folders_of_clients_hold_folders_of_classes(tmp_path: Path) -> None:
    for number in range(4):
        picture(tmp_path / "north" / "cat" / f"{number}.png", 1)
        picture(tmp_path / "north" / "unlabelled" / f"{number}.png", 2)
        picture(tmp_path / "south" / "dog" / f"{number}.png", 3)
    data = load(DataSettings(name=str(tmp_path)))
    assert data.client_names == ("north", "south")
    assert data.classes == ("cat", "dog")
    assert data.client is not None
    of_north = data.labels[data.client == 0]
    assert sorted(of_north.tolist()) == [-1] * 4 + [0] * 3
    prepared = prepare(
        Config.load(overrides=["partition.kind=column", "labelling.positive=as-given"]).with_(
            "priors.source=estimated"
        ),
        data,
    )
    assert prepared.federation.positive.tolist() == [[True, False], [False, True]]


def test_every_reader_says_what_it_reads_and_leaves_other_things_alone() -> None:
    for name in READERS:
        assert READERS[name].what
        assert not READERS[name]().takes(object())
