"""Errors that are sentences for the person who made the mistake: what was given, what was expected, how to fix it."""

from __future__ import annotations

import difflib
import sys
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable

DAMAGED_ARCHIVE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy raises for archives that are damaged in one way or another."""


class FedpuError(Exception):
    """Anything a user can put right. The command line prints its text alone and exits with status 1."""


class ConfigError(FedpuError):
    """A setting that is unknown or has a value that can't be used."""


class DataError(FedpuError):
    """Data that are missing, damaged, or not of the form that training needs."""


class LabellingError(FedpuError):
    """Positive classes that can't be handed out as asked."""


class EstimationError(FedpuError):
    """Data from which class priors can't be estimated."""


class TrainingError(FedpuError):
    """A run that can't go on, such as a loss that is no longer a number."""


class FedpuWarning(UserWarning):
    """Something that can be done and was hardly meant. The command line prints its text alone."""


def warn(message: str) -> None:
    """Warn the user; the warning points at the line outside the package from which the package was called."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fedpu":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, FedpuWarning, stacklevel=level)


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the nearest spelling of ``given``, or nothing when none is near."""
    near = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""
