"""Data: known data sets by name, a user's own from arrays or image folders, all as a checked ``Dataset``."""

from fedpu.data.dataset import Dataset, Normalisation, dtype_name
from fedpu.data.inputs import Inputs, read_inputs
from fedpu.data.reader import READERS
from fedpu.data.settings import DataSettings, data_directory
from fedpu.data.source import Source
from fedpu.data.sources import FROM_PYTHON, SOURCES, fetch, load

__all__ = [
    "FROM_PYTHON",
    "READERS",
    "SOURCES",
    "DataSettings",
    "Dataset",
    "Inputs",
    "Normalisation",
    "Source",
    "data_directory",
    "dtype_name",
    "fetch",
    "load",
    "read_inputs",
]
