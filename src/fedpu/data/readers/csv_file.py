"""CSV: text with a line for each row, the first of which names the columns."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any, ClassVar

from fedpu.data.problems import Problems
from fedpu.data.raw import Raw
from fedpu.data.readers.base import FileReader
from fedpu.data.table import Table, text_column
from fedpu.errors import DataError

csv.field_size_limit(2**31 - 1)  # a cell may hold the token ids of a long text


class CSVReader(FileReader):
    """Commas, semicolons or tabs between cells, whichever the first line has most of."""

    what: ClassVar[str] = "a CSV file with a line of column names"
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")

    def takes(self, given: Any) -> bool:
        """Is it a CSV file, packed or not?"""
        packed = isinstance(given, Path) and given.suffix.lower() == ".gz" and super().takes(given.with_suffix(""))
        return packed or super().takes(given)

    def read_file(self, path: Path) -> Raw:
        """Return the table."""
        text = _text(path)
        first, _, _ = text.partition("\n")
        if not first.strip():
            raise DataError(f"{path} has no line of column names: it is empty, or its first line is.")
        delimiter = max(",;\t", key=first.count)
        try:
            names, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        except csv.Error as error:
            raise DataError(f"{path} can't be read as CSV ({error}). Is a quotation mark left open?") from error
        names = [name.strip() for name in names]
        rows = [row for row in rows if row]
        _check(path, names, rows)
        cells = dict(zip(names, zip(*rows, strict=True), strict=True))
        return Raw(path.name, Table.of(names, lambda name: text_column(cells[name], name, path.name)))


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix.lower() == ".gz" else content
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8."
        ) from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path} can't be read ({error}).") from error
    if "\0" in text:
        raise DataError(f"{path} is no text: it has zero bytes in it. Save the table as CSV, in UTF-8.")
    return text


def _check(path: Path, names: list[str], rows: list[list[str]]) -> None:
    problems = Problems()
    if "" in names:
        problems.add(f"{path}: column {names.index('') + 1} has no name in the first line.")
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        problems.add(f"{path} has two columns called '{twice[0]}'.")
    if not rows:
        problems.add(f"{path} has a line of column names and no rows.")
    ragged = [number for number, row in enumerate(rows) if len(row) != len(names)]
    if ragged:
        row = ragged[0]
        problems.add(
            f"{path}: row {row} after the line of names has {len(rows[row])} cells, and there are {len(names)} columns"
            + (f" ({len(ragged)} rows are like that)." if len(ragged) > 1 else ".")
        )
    problems.tell()
