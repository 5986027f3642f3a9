"""Data: known data sets by name, a user's own in any of several forms, all as a checked ``Dataset``."""

from fedpu.data.dataset import Dataset, Normalisation, TestOrigin, as_tokens, dtype_name
from fedpu.data.encoding import Encoding
from fedpu.data.functions import FUNCTIONS
from fedpu.data.inputs import Inputs, read_inputs
from fedpu.data.readers import READERS, Reader
from fedpu.data.settings import DataSettings, data_directory
from fedpu.data.source import Source
from fedpu.data.sources import FROM_PYTHON, SOURCES, fetch, load, read

__all__ = [
    "FROM_PYTHON",
    "FUNCTIONS",
    "READERS",
    "SOURCES",
    "DataSettings",
    "Dataset",
    "Encoding",
    "Inputs",
    "Normalisation",
    "Reader",
    "Source",
    "TestOrigin",
    "as_tokens",
    "data_directory",
    "dtype_name",
    "fetch",
    "load",
    "read",
    "read_inputs",
]
