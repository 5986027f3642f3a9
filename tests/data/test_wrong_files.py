"""Forty files that can't be used, and the sentence that each of them gets."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from fedpu.applications.check import check
from fedpu.data import DataSettings, load
from fedpu.errors import FedpuError

GOOD = "a,b,label\n" + "".join(f"{i},{i * i},{'cat' if i % 2 else 'dog'}\n" for i in range(20))
X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = np.arange(20) % 2


def text(content: str, name: str = "own.csv") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(content)
        return folder / name

    return write


def content(data: bytes, name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return write


def npz(**arrays: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        np.savez(folder / "own.npz", **arrays)
        return folder / "own.npz"

    return write


def table(**columns: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        parquet.write_table(pyarrow.table(columns), folder / "own.parquet")
        return folder / "own.parquet"

    return write


def images(*names: str, size: Callable[[int], int] = lambda number: 6) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for number, name in enumerate(names):
            path = folder / "pets" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".png":
                Image.fromarray(np.zeros((size(number), 5), dtype=np.uint8)).save(path)
            else:
                path.write_text("no image")
        return folder / "pets"

    return write


def rows(label: Callable[[int], str], *, names: str = "a,label", count: int = 20) -> str:
    return f"{names}\n" + "".join(f"{i % 7}.5,{label(i)}\n" for i in range(count))


WRONG: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "empty": (text(""), {}, "own.csv has no line of column names"),
    "only names": (text("a,b,label\n"), {}, "a line of column names and no rows"),
    "no label column": (text(GOOD.replace("label", "lable", 1)), {}, "no column 'label'. Did you mean 'lable'"),
    "another label column": (text(GOOD), {"label": "kind"}, "no column 'kind'.* Its columns: 'a', 'b', 'label'"),
    "no such client column": (text(GOOD), {"client": "owner"}, "no column 'owner'.*--set data.client=NAME"),
    "no such column to ignore": (text(GOOD), {"ignore": ["id"]}, "no column 'id', which data.ignore leaves out"),
    "a short row": (text(GOOD + "1,2\n"), {}, "row 20 after the line of names has 2 cells, and there are 3 columns"),
    "long rows": (text(GOOD + "1,2,cat,4\n" * 3), {}, r"has 4 cells, and there are 3 columns \(3 rows"),
    "a name twice": (text(GOOD.replace("a,b", "a,a", 1)), {}, "two columns called 'a'"),
    "a column without name": (text(GOOD.replace("a,b", "a,", 1)), {}, "column 2 has no name"),
    "an open quotation mark": (text(GOOD + '"1,2,cat\n'), {}, "can't be read as CSV .*quotation mark left open"),
    "another encoding": (content("a,label\n1,caf\u00e9\n".encode("latin-1"), "own.csv"), {}, "not text in UTF-8"),
    "zero bytes": (content(b"a,label\n1,\0\n", "own.csv"), {}, "is no text: it has zero bytes"),
    "damaged gzip": (content(gzip.compress(GOOD.encode())[:-12], "own.csv.gz"), {}, "own.csv.gz can't be read"),
    "no label at all": (text(rows(lambda i: "")), {}, "own.csv: label has no label at all"),
    "one class": (text(rows(lambda i: "cat")), {}, "fewer than two classes"),
    "nothing but labels": (text("label\ncat\ndog\n" * 5), {}, "no column to learn from besides the label"),
    "an empty column": (text("a,b,label\n" + "1,,cat\n2,,dog\n" * 5), {}, "'b' is empty in every row"),
    "decimal commas": (text("a;label\n" + "1,5;cat\n2,25;dog\n" * 5), {}, "'a' has numbers with a decimal comma"),
    "infinite numbers": (text("a,label\n" + "inf,cat\n2,dog\n" * 5), {}, "NaN or infinite in 4 examples|infinite"),
    "too many words": (
        text("id,a,label\n" + "".join(f"row-{i},{i},{'xy'[i % 2]}\n" for i in range(1500))),
        {},
        "'id' has 1,[0-9]+ different words.*--set 'data.ignore",
    ),
    "rows of nobody": (
        text("a,client,label\n" + "1,north,cat\n2,,dog\n" * 5),
        {},
        r"'client' is empty in 5 rows \(the first is row 1\)",
    ),
    "labels that are numbers like 0.37": (
        text(rows(lambda i: f"0.{i + 100}", count=60)),
        {},
        "60 different labels in 60 labelled rows.*these are no classes",
    ),
    "words instead of token ids": (text(rows(lambda i: "xy"[i % 2])), {"tokens": True}, "must hold token ids"),
    "text instead of token ids": (
        text("words,label\n" + "12 7 word,cat\n3 4,dog\n" * 5),
        {"tokens": True},
        "token ids between spaces.*row 0 has '12 7 word'",
    ),
    "test rows that are not there": (text(GOOD), {"test": "absent.csv"}, r"no file absent\.csv"),
    "no Parquet": (text(GOOD, "own.parquet"), {}, "is not a Parquet file or is damaged"),
    "dates": (
        table(a=pyarrow.array([1, 2] * 9, pyarrow.date32()), label=["cat", "dog"] * 9),
        {},
        "'a' holds dates or times",
    ),
    "nested columns": (
        table(a=[{"x": 1}, {"x": 2}] * 9, label=["cat", "dog"] * 9),
        {},
        "'a' holds dict, which are neither numbers nor words",
    ),
    "vectors of many lengths": (
        table(a=[[1.5], [1.5, 2.5]] * 9, label=["cat", "dog"] * 9),
        {},
        "lists in the column 'a' have different lengths",
    ),
    "an empty Parquet file": (
        table(a=pyarrow.array([], pyarrow.float64()), label=pyarrow.array([], pyarrow.string())),
        {},
        "own.parquet has no rows",
    ),
    "an archive of something else": (npz(x=X, label=Y), {}, "has no array 'y'"),
    "arrays of two lengths": (npz(x=X, y=Y[:3]), {}, "x has 20, y has 3"),
    "NaN among the inputs": (npz(x=np.where(X > 2, np.nan, X) * np.nan, y=Y), {}, "NaN or infinite in 20 examples"),
    "a gap in the classes": (npz(x=X, y=Y * 2), {}, r"no training example has class 1"),
    "a class that nobody labels": (
        npz(x=X, y=Y, classes=np.array(["cat", "dog", "owl"])),
        {},
        r"no training example has class 2 \('owl'\); nobody labels it",
    ),
    "negative token ids": (npz(x=-np.ones((20, 4), dtype=int), y=Y), {"tokens": True}, "token id -1 in example 0"),
    "an empty folder of a class": (images("cat/1.png", "dog/readme.txt"), {}, "dog has no images"),
    "classes beside clients": (
        images("cat/1.png", "north/dog/1.png"),
        {},
        "mixes classes and clients: 'cat' holds images, and 'north' holds folders",
    ),
    "images of two sizes": (
        images("cat/1.png", "dog/1.png", size=lambda number: 6 + number),
        {},
        "Images must have one size",
    ),
    "only unlabelled images": (images("unlabelled/1.png", "unlabelled/2.png"), {}, "no folder for a class besides"),
    "a spreadsheet": (content(b"PK\x03\x04", "own.xlsx"), {}, "own.xlsx can't be read as data. What is: a CSV"),
}


def test_there_are_forty_of_them() -> None:
    assert len(WRONG) >= 40


@pytest.mark.parametrize(("write", "settings", "told"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_gets_a_sentence(
    write: Callable[[Path], Path], settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    chosen = DataSettings(name=str(write(tmp_path)), **settings)
    with pytest.raises(FedpuError) as error:
        load(chosen)
    sentence = str(error.value)
    assert re.search(told, sentence), sentence
    assert sentence[0].isupper() or sentence.startswith(("own", "/", "pets")), sentence
    assert sentence.endswith((".", "?")), sentence
    assert check(chosen).wrong == sentence.splitlines()


def test_no_two_of_them_get_the_same_sentence(tmp_path: Path) -> None:
    told = set()
    for number, (write, settings, _) in enumerate(WRONG.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(FedpuError) as error:
            load(DataSettings(name=str(write(folder)), **settings))
        told.add(str(error.value).replace(str(folder), ""))
    assert len(told) == len(WRONG)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,when,code,label\n" + "x1,,,cat\nx2,,,\n" * 600)
    wrong = check(DataSettings(name=str(tmp_path / "own.csv"), client="owner", ignore=["gone"])).wrong
    assert len(wrong) == 2
    np.savez(tmp_path / "own.npz", x=X[:, 0], y=np.full(20, 7.5), client=np.full(20, np.nan), x_test=X)
    wrong = check(DataSettings(name=str(tmp_path / "own.npz"))).wrong
    assert len(wrong) == 4
    for told in (
        "x_test was given without y_test",
        "its shape is \\(20,\\)",
        "whole class numbers",
        "whose each example",
    ):
        assert any(re.search(told, sentence) for sentence in wrong), wrong
