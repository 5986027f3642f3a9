"""NumPy's ``.npz`` archives and ``.npy`` files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedpu.data.raw import Raw
from fedpu.data.readers.base import FileReader
from fedpu.data.settings import DataSettings
from fedpu.errors import DAMAGED_ARCHIVE, DataError

KEYS = frozenset({"x", "y", "client", "x_test", "y_test", "classes"})
Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


class NpzReader(FileReader):
    """Arrays ``x`` and ``y``, and where there are any, ``client``, ``x_test``, ``y_test`` and ``classes``."""

    what: ClassVar[str] = "a .npz file of arrays x, y and maybe client, x_test, y_test, classes"
    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    def read(self, given: Any, settings: DataSettings) -> Raw:
        """Read the archive, which has its test set in it."""
        if settings.test is not None:
            raise DataError(
                "data.test goes with CSV and Parquet files; a .npz file has its tests as x_test and y_test."
            )
        return self.read_file(given)

    def read_file(self, path: Path) -> Raw:
        """Return its arrays."""
        arrays = load_npz(path, required=("x", "y"))
        classes, tests = arrays.get("classes"), (arrays.get("x_test"), arrays.get("y_test"))
        return Raw(
            path.name,
            arrays["x"],
            arrays["y"],
            arrays.get("client"),
            None if classes is None else [str(name) for name in classes.reshape(-1)],
            None if all(part is None for part in tests) else Raw(path.name, *tests),
        )

    def inputs(self, given: Any, settings: DataSettings) -> Raw:
        """Return ``x``."""
        return Raw(str(given), load_npz(given, required=("x",))["x"])


class NpyReader(FileReader):
    """One array, to predict on."""

    what: ClassVar[str] = "a .npy file, to predict on"
    suffixes: ClassVar[tuple[str, ...]] = (".npy",)

    def read_file(self, path: Path) -> Raw:
        """Refuse it for training, for it has no labels."""
        raise DataError(f"{path} has no labels. Write both with numpy.savez(path, x=…, y=…).")

    def inputs(self, given: Any, settings: DataSettings) -> Raw:
        """Return the array."""
        try:
            with open(given, "rb") as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
        except DAMAGED_ARCHIVE as error:
            raise DataError(
                f"{given} is not a .npy file of numbers ({error}). Write one with numpy.save(path, x)."
            ) from error
        return Raw(str(given), array)


def load_npz(path: Path, required: tuple[str, ...]) -> Arrays:
    """Return the arrays of a ``.npz`` file, never running code that a file may hold (pickles are refused)."""
    if not path.is_file():
        raise DataError(f"There is no file {path}. Give the path of a .npz file.")
    try:
        with open(path, "rb") as file:
            found = np.load(file, allow_pickle=False)
            if not isinstance(found, np.lib.npyio.NpzFile):
                raise DataError(f"{path} is not a .npz file. Write one with numpy.savez(path, x=…, y=…).")
            with found:
                keys = tuple(found.files)
                absent = [key for key in required if key not in keys]
                if absent:
                    raise DataError(
                        f"{path} has no array {_listed(absent)}; it has {_listed(keys) or 'none at all'}. "
                        f"Write it with numpy.savez(path, {', '.join(f'{key}=…' for key in required)})."
                    )
                return {key: _member(found, key, path) for key in keys if key in KEYS}
    except DAMAGED_ARCHIVE as error:
        raise DataError(
            f"{path} is not a .npz file or is damaged ({error}). Write one with numpy.savez(path, x=…, y=…)."
        ) from error


def _member(found: Any, key: str, path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        array: np.ndarray[Any, np.dtype[Any]] = found[key]
    except ValueError as error:
        if "pickle" not in str(error).lower() and "object" not in str(error).lower():
            raise
        raise DataError(
            f"The array '{key}' of {path} holds Python objects, which are not read because they can run "
            "code. Save it as plain numbers (or, for names, as numpy strings)."
        ) from error
    return array


def _listed(names: Any) -> str:
    return ", ".join(f"'{name}'" for name in names)
